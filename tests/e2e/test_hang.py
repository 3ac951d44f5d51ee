"""Real SGLang that runs and does not answer: a scheduler that is stopped looks well to SGLang's own watchdog."""

from collections.abc import Iterator

import pytest

from tests.e2e.inquest import Inquest, Server, until

pytestmark = [pytest.mark.e2e, pytest.mark.sglang]

NOTICED_SECONDS = 30.0


@pytest.fixture
def stopped(demo: Server) -> Iterator[int]:
    """The pid of the demonstration server's scheduler, which is stopped; it goes on in the end."""
    demo.serving()
    pid = demo.child("sglang::scheduler")
    demo.kill(pid, "STOP")
    yield pid
    demo.kill(pid, "CONT")


def test_a_stopped_scheduler_is_told_within_half_a_minute_and_told_when_it_is_back(
    inquest: Inquest, demo: Server, stopped: int
) -> None:
    run = demo.current()
    until(lambda: inquest.not_answering(demo), "the hang is noticed", seconds=NOTICED_SECONDS)
    assert demo.show("ActiveState") == "active"
    assert "does not answer since" in demo.show("StatusText")
    demo.kill(stopped, "CONT")
    until(lambda: inquest.not_answering(demo) is None, "it answers again", seconds=NOTICED_SECONDS)
    assert demo.current() == run
    events = [body["event"] for body in inquest.living(run)]
    assert events == ["hang", "answering"]
    (record,) = inquest.hangs(run)
    assert "sglang::schedul is stopped" in record["MESSAGE"]
    # py-spy lies in SGLang's environment, and names the line on which it stands.
    assert "scheduler.py" in record["INQUEST_HANG_STACKS"]
