"""A file is known by its content."""

from datetime import UTC, datetime

import pytest

from forensics.analyze.forms import Form, recognise
from tests.forensics.analyze.saved import UNIT, Journal, oom, served, short, syslog, systemd

NOW = datetime(2026, 5, 18, tzinfo=UTC)

KERNEL_FORMS = {
    "dmesg": "[  912.104411] {}",
    "dmesg -r": "<4>[  912.104411] {}",
    "dmesg -x": "kern  :warn  : [  912.104411] {}",
    "dmesg -T": "[Sun May 17 08:03:20 2026] {}",
    "dmesg -T in French": "[dim. 17 mai 08:03:20 2026] {}",
    "dmesg -T in Chinese": "[日 5月 17 08:03:20 2026] {}",
    "dmesg --time-format=iso": "2026-05-17T08:03:20,104411+02:00 {}",
    "/dev/kmsg": "4,1201,912104411,-;{}",
}
SHORT_FORMS = {
    "short": "May 17 08:03:20 maple {}",
    "short-precise": "May 17 08:03:20.104411 maple {}",
    "short-iso": "2026-05-17T08:03:20+0000 maple {}",
    "short-iso without a host": "2026-05-17T08:03:20+02:00 {}",
    "short-full": "Sun 2026-05-17 08:03:20 UTC maple {}",
    "short-monotonic": "[  912.104411] maple {}",
    "short-unix": "1779005000.104411 maple {}",
    "in German": "Mai 17 08:03:20 maple {}",
    "in Japanese": "5月 17 08:03:20 maple {}",
    "in French": "mai 17 08:03:20 maple {}",
    "rsyslog": "2026-05-17T08:03:20.104411+00:00 maple {}",
}


@pytest.mark.parametrize("form", KERNEL_FORMS)
def test_a_kernel_log(form: str) -> None:
    text = "\n".join(KERNEL_FORMS[form].format(message) for message in oom())
    assert recognise(text.encode(), NOW).form is Form.KERNEL


@pytest.mark.parametrize("form", SHORT_FORMS)
def test_text_with_senders(form: str) -> None:
    senders = (
        "systemd[1]: Started maple.",
        "kernel: usb 1-1: new device",
        "python3[4711]: [2026-05-17 08:00:00] hello",
    )
    text = "\n".join(SHORT_FORMS[form].format(sender) for sender in senders)
    assert recognise(text.encode(), NOW).form is Form.SYSLOG


def test_journals_with_fields() -> None:
    journal = Journal().started()
    assert recognise(b"LPKSHHRH" + bytes(200), NOW).form is Form.JOURNAL
    assert recognise(journal.export(), NOW).form is Form.EXPORT
    assert recognise(journal.json(), NOW).form is Form.JSON
    assert recognise(journal.pretty(), NOW).form is Form.JSON
    assert recognise(journal.verbose(), NOW).form is Form.VERBOSE


def test_what_else_there_is() -> None:
    show = f"Id={UNIT}\nActiveState=failed\nResult=signal\nExecMainStatus=9\nDescription=maple\n"
    status = f"● {UNIT} - maple\n     Loaded: loaded (/x; static)\n     Active: failed (Result: signal) since Sun\n"
    assert recognise(show.encode(), NOW).form is Form.SHOW
    assert recognise(status.encode(), NOW).form is Form.STATUS
    assert recognise(b'{\n   "dmesg": [\n      {\n         "pri": 4,', NOW).form is Form.DMESG_JSON
    assert recognise(b'{"log":"hello\\n","stream":"stderr","time":"2026-05-17T08:00:00Z"}\n', NOW).form is Form.RECORDS
    assert recognise("\n".join(served()).encode(), NOW).form is Form.TEXT
    assert recognise(b"", NOW).form is Form.EMPTY
    assert recognise(bytes(range(256)) * 40, NOW).form is Form.UNKNOWN


def test_text_in_two_bytes_a_character() -> None:
    """What PowerShell's `>` writes."""
    text = "\n".join(served())
    assert recognise(b"\xff\xfe" + text.encode("utf-16-le"), NOW).form is Form.TEXT


def test_a_log_of_a_server_that_quotes_the_kernel_is_no_kernel_log() -> None:
    quoted = [f"[  912.104411] {message}" for message in oom()]
    assert recognise("\n".join([*served(), *quoted]).encode(), NOW).form is Form.TEXT


def test_an_export_that_runs_backwards() -> None:
    lines = short(served())
    assert not recognise("\n".join(lines).encode(), NOW).newest_first
    assert recognise("\n".join(reversed(lines)).encode(), NOW).newest_first


def test_a_paste_that_is_indented() -> None:
    lines = [f"    {text}" for text in (systemd(1, "Started maple."), syslog(2, "python3[4711]", "hello"))]
    found = recognise("\n".join(lines).encode(), NOW)
    assert (found.form, found.indent) == (Form.SYSLOG, 4)
