"""`inquest alerts`, and what the API says of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from forensics.alerts.decide import Manner
from forensics.alerts.routing import Addressee
from forensics.api import create_app
from forensics.api.examples import EXAMPLES
from forensics.shapes import AlertsShape
from forensics.store import Store
from forensics.store.rows import now_usec
from forensics.store.telling import Channel
from tests.forensics.commandline import Inquest
from tests.forensics.factories import HEALTH, crash
from tests.forensics.receiver import Receiver, receiving

pytestmark = pytest.mark.usefixtures("api")

MANNER = Manner(gather_seconds=(600.0,))


@pytest.fixture
def channels() -> tuple[Channel, ...]:
    return (
        Addressee(name="journal", type="journal", manner=Manner(), everything=True),
        Addressee(name="pager", type="webhook", manner=MANNER),
        Addressee(name="chat", type="apprise", manner=MANNER),
    )


def happens(store: Store) -> None:
    """Two deaths that are alike: the journal has both, the pager fails, the chat was told of the first."""
    store.save(crash(1))
    for name in ("journal", "chat", "pager"):
        delivery = store.outbox.take(name, now_usec())
        assert delivery is not None
        if name == "pager":
            store.outbox.failed(delivery, "the receiver answered 503 Service Unavailable", now_usec() + 4_000_000)
        else:
            store.outbox.delivered(delivery, now_usec())
    store.save(crash(2))
    journal = store.outbox.take("journal", now_usec())
    assert journal is not None
    store.outbox.delivered(journal, now_usec())


def test_status_says_what_waits_and_why(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    happens(store)
    assert inquest("alerts", "status") == 0
    told = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert lines[0] == "channel type delivered waiting last delivered (UTC) trouble"
    assert lines[1].startswith("journal journal 2 0 20")
    assert lines[1].endswith(" -")
    assert lines[2] == "pager webhook 0 2 - the receiver answered 503 Service Unavailable"
    assert lines[3].startswith("chat apprise 1 1 20")
    waiting = {line.split()[0]: line for line in lines[6:]}
    assert "demo crash 000000000001" in lines[6]
    assert lines[6].endswith("tried 1 time: the receiver answered 503 Service Unavailable")
    assert "demo folded (1) 000000000002" in waiting["chat"]
    assert waiting["chat"].endswith("gathers repeats of the same death")
    assert waiting["pager"].endswith("an earlier message about this server has to go first")


def test_status_as_json_is_what_the_api_answers(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    happens(store)
    assert inquest("alerts", "status", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    with TestClient(create_app(store, lambda: HEALTH), base_url="http://localhost:8642") as client:
        assert told == client.get("/alerts").json()
    TypeAdapter(AlertsShape).validate_python(told, strict=True)


def test_a_channel_that_is_configured_no_longer_is_shown_as_gone(store: Store, tmp_path: Path) -> None:
    happens(store)
    store.close()
    after = Store(tmp_path / "inquest.sqlite")
    after.outbox.abandon_others(["journal"])
    names = {channel["name"]: channel["type"] for channel in after.alerts()["channels"]}
    assert names == {"journal": "gone", "pager": "gone", "chat": "gone"}
    assert after.alerts()["waiting"] == []
    after.close()


def test_the_example_is_one() -> None:
    TypeAdapter(AlertsShape).validate_python(EXAMPLES["alerts"], strict=True)


# --- a test message ------------------------------------------------------------------------------------------


def settings(folder: Path, text: str) -> str:
    path = folder / "inquestd.toml"
    path.write_text(text)
    return f"--settings={path}"


def test_a_test_goes_through_the_channel_and_says_what_was_answered(
    tmp_path: Path, inquest: Inquest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.cli.alerts._become_the_daemon", lambda: None)
    with receiving(Receiver(answers=[202, 503])) as receiver:
        option = settings(tmp_path, f'[[alerts.webhooks]]\nname = "pager"\nurl = "{receiver.url}"\n')
        assert inquest("alerts", "test", "pager", option) == 0
        assert capsys.readouterr().out.endswith(" s: 202 Accepted\n")
        assert inquest("alerts", "test", "pager", option) == 1
    assert "pager: not delivered: the receiver answered 503" in capsys.readouterr().err
    body = receiver.got[0]["body"]
    assert body["event"] == "test"
    assert body["text"].startswith("Test, nothing died: demo on ")
    assert "kernel-oom (confirmed)" in body["text"]


def test_a_command_that_is_not_there_is_told(
    tmp_path: Path, inquest: Inquest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.cli.alerts._become_the_daemon", lambda: None)
    option = settings(tmp_path, '[[alerts.commands]]\nname = "siren"\nargv = ["/nowhere/siren"]\n')
    assert inquest("alerts", "test", "siren", option) == 1
    assert "siren: not delivered: FileNotFoundError" in capsys.readouterr().err


def test_a_wrong_name_is_told_with_those_that_there_are(
    tmp_path: Path, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    option = settings(tmp_path, '[[alerts.commands]]\nname = "siren"\nargv = ["/bin/true"]\n')
    assert inquest("alerts", "test", "sirene", option) == 2
    told = capsys.readouterr().err
    assert "no channel 'sirene'" in told
    assert "Did you mean 'siren'? There are: journal, siren." in told


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_as_root_it_is_sent_as_the_daemons_user() -> None:
    """In a process of its own, with a user that exists on every machine in place of inquest."""
    # pytest's own folders are closed to others.
    with TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        command = f'argv = ["/bin/sh", "-c", "id -un > {folder}/seen"]'
        option = settings(folder, f'[[alerts.commands]]\nname = "siren"\n{command}\n')
        script = (
            "import sys; from forensics.cli import alerts; alerts.USER = 'nobody';"
            f"sys.argv = ['inquest', 'alerts', 'test', 'siren', '{option}'];"
            "from forensics.__main__ import main; main()"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert (folder / "seen").read_text() == "nobody\n"
