"""The tracer's records: whose are believed, and what they say."""

from hypothesis import given
from hypothesis import strategies as st

from forensics.entry import Entry
from forensics.events import SignalSent, SignalTracing
from forensics.sigtrace import INTERRUPTED, SIGNAL_SENT, WATCHING
from forensics.sources import RECORDED, sigtrace

from .entries import UNIT, entry

TRACER = {"_UID": "0", "_SYSTEMD_UNIT": "inquest-sigtrace.service", "_TRANSPORT": "journal", "_PID": "700"}
KILL = {
    "MESSAGE_ID": SIGNAL_SENT,
    "INQUEST_SIGNAL": "9",
    "INQUEST_FROM_KERNEL": "0",
    "INQUEST_SENDER_PID": "512",
    "INQUEST_SENDER_COMM": "kill",
    "INQUEST_SENDER_CMDLINE": "kill -9 4321",
    "INQUEST_SENDER_UID": "1000",
    "INQUEST_SENDER_UNIT": "session-3.scope",
    "INQUEST_TARGET_PID": "4321",
    "INQUEST_TARGET_COMM": "python3",
    "INQUEST_TARGET_UNIT": UNIT,
}


def signal(**fields: str) -> SignalSent:
    event = sigtrace.parse(entry("SIGKILL to python3 [4321]", **TRACER, **(KILL | fields)))
    assert isinstance(event, SignalSent)
    return event


def test_a_signal() -> None:
    sent = signal()
    assert (sent.signal, sent.sender_pid, sent.sender_comm, sent.from_kernel) == (9, 512, "kill", False)
    assert (sent.target_pid, sent.target_comm, sent.target_unit) == (4321, "python3", UNIT)
    assert sent.sender_unit == "session-3.scope"
    assert sent.sender_detail == "`kill -9 4321`, uid 1000, session-3.scope"
    assert sigtrace.parse in RECORDED


def test_sudo_containers_parents_and_what_is_missing() -> None:
    sent = signal(
        INQUEST_SENDER_UID="0",
        INQUEST_SENDER_LOGIN_UID="1000",
        INQUEST_SENDER_UNIT="docker-1f2e.scope",
        INQUEST_SENDER_INNER_PID="7",
        INQUEST_SENDER_CMDLINE="",
        INQUEST_SENDER_PARENT_CMDLINE="bash clean.sh",
        INQUEST_SENDER_MISSING="command line",
    )
    assert sent.sender_detail == (
        "uid 0 (logged in as uid 1000), docker-1f2e.scope (a container, pid 7 in it), "
        "started by `bash clean.sh`, gone before its command line could be read"
    )


def test_the_kernels_own_stamp_orders_it() -> None:
    sent = signal(INQUEST_MONOTONIC_USEC="6990000")
    assert sent.record.monotonic_usec == 6_990_000
    assert sent.record.realtime_usec == 1_772_366_400_000_000 + 6_990_000
    assert signal(INQUEST_MONOTONIC_USEC="9999999999").record.monotonic_usec == 7_000_000, "not from the future"


def test_secrets_of_a_command_line_go_even_if_they_were_written() -> None:
    assert "hunter2" not in signal(INQUEST_SENDER_CMDLINE="deploy --password hunter2").sender_detail


def test_only_the_tracers_unit_under_root_is_believed() -> None:
    for forged in (
        {**TRACER, "_SYSTEMD_UNIT": UNIT},
        {**TRACER, "_UID": "990"},
        {**TRACER, "_SYSTEMD_UNIT": "session-3.scope"},
    ):
        assert sigtrace.parse(entry("SIGKILL to python3 [4321]", **forged, **KILL)) is None


def test_coverage() -> None:
    watching = sigtrace.parse(entry("tracing", **TRACER, MESSAGE_ID=WATCHING, INQUEST_SINCE_USEC="5000"))
    interrupted = sigtrace.parse(entry("stopped", **TRACER, MESSAGE_ID=INTERRUPTED, INQUEST_REASON="stopped"))
    assert isinstance(watching, SignalTracing)
    assert isinstance(interrupted, SignalTracing)
    assert (watching.since_usec, interrupted.since_usec) == (5000, None)
    assert sigtrace.parse(entry("tracing", **TRACER, MESSAGE_ID=WATCHING)) is None


@given(st.dictionaries(st.sampled_from([*KILL, "INQUEST_MONOTONIC_USEC", "INQUEST_SINCE_USEC"]), st.text(max_size=40)))
def test_no_record_makes_it_raise(fields: dict[str, str]) -> None:
    for message_id in (SIGNAL_SENT, WATCHING, INTERRUPTED):
        odd = entry("?", **TRACER, **{**KILL, **fields, "MESSAGE_ID": message_id})
        assert isinstance(odd, Entry)
        sigtrace.parse(odd)
