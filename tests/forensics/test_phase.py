"""How far it had come, and what it was doing."""

from io import BytesIO

import pytest

from forensics.causality import Ending
from forensics.phase import became_ready, doing, phase
from forensics.sources.export import read_json
from tests.cases.replay import replay
from tests.cases.story import Journal, Life


def ending(*steps: str) -> Ending:
    journal = Journal(name="phase")
    life = journal.life()
    life.starting()
    for step in steps:
        getattr(life, step)()
    life.wait(0.5).killed()
    return judged(journal, life)


def judged(journal: Journal, life: Life) -> Ending:
    (one,) = replay(read_json(BytesIO(journal.dump().encode())), {life.unit})
    return Ending(one.run, one.timeline)


@pytest.mark.parametrize(
    ("steps", "expected", "ready"),
    [
        ((), "before-logging", False),
        (("load",), "startup", False),
        (("load", "pools", "graphs"), "startup", False),
        (("load", "pools", "graphs", "open"), "warmup", False),
        (("load", "pools", "graphs", "open", "ready"), "serving", True),
        (("load", "pools", "graphs", "open", "serve"), "serving", True),
        (("load", "pools", "serve"), "startup", False),
    ],
)
def test_the_steps_of_a_start(steps: tuple[str, ...], expected: str, *, ready: bool) -> None:
    at_end = ending(*steps)
    assert phase(at_end, at_end.run.ended_usec) == expected
    assert became_ready(at_end) is ready


def test_from_a_stop_on_it_is_the_shutdown() -> None:
    journal = Journal(name="phase")
    life = journal.life()
    life.up().stopping().wait(9).timed_out("stop-sigterm").killed(9, "timeout")
    at_end = judged(journal, life)
    assert phase(at_end, at_end.run.ended_usec) == "shutdown"
    assert phase(at_end, at_end.run.ended_usec - 15_000_000) == "serving"


def test_what_it_was_doing_is_the_last_decode_line_before_the_dying_began() -> None:
    journal = Journal(name="phase")
    life = journal.life(throughput=99.5)
    life.up().wait(3)
    began = journal.usec
    life.throughput = 1.0
    life.serve(1, every=0.1).killed()
    told = doing(judged(journal, life), began)
    assert dict(told.figures)["gen throughput (token/s)"] == "99.50"
    assert told.seconds_before_death is not None
    assert 2.9 < told.seconds_before_death < 3.1


def test_a_server_that_never_decoded_was_doing_nothing() -> None:
    assert doing(ending("load"), 10**12).figures == ()
