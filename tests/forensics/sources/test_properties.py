"""No input makes a parser raise, hang, or believe a sender whom it should not."""

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics import xid_catalog
from forensics.entry import Entry
from forensics.events import GpuLost, Xid
from forensics.sources import RECORDED, kernel, oomkillers, rejected, systemd
from forensics.sources.export import read_export, read_json
from tests.forensics.sources.entries import entry
from tests.forensics.sources.test_kernel import TABLE
from tests.forensics.sources.test_systemd import BY_ID, LOST, U
from tests.forensics.sources.test_systemd import WORDINGS as SYSTEMD_WORDINGS

KNOWN = [row[1] for row in TABLE] + [U + row[0] for row in (*SYSTEMD_WORDINGS, *LOST)]
IDS = [given_entry.get("MESSAGE_ID") for given_entry, _, _ in BY_ID] + [systemd.SPAWN_FAILED, systemd.SHUTDOWN, ""]

texts = st.text() | st.sampled_from(KNOWN)
# A known line with something cut out of it, or put into it.
bent = st.builds(
    lambda line, at, length, put: line[: at % (len(line) + 1)] + put + line[at % (len(line) + 1) + length :],
    st.sampled_from(KNOWN),
    st.integers(0, 400),
    st.integers(0, 20),
    st.text(max_size=20),
)
senders = st.sampled_from(
    [
        {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "journal", "_PID": "1"},
        {"_TRANSPORT": "journal", "_UID": "0", "_COMM": "(python3)"},
        *({"_SYSTEMD_UNIT": unit} for unit in oomkillers.KILLERS),
    ]
)
names = st.sampled_from(
    ["UNIT", "UNIT_RESULT", "EXIT_STATUS", "EXIT_CODE", "N_RESTARTS", "JOB_RESULT", "COREDUMP_PID", "COREDUMP_SIGNAL"]
)
values = st.text(max_size=12) | st.sampled_from(["--5", "-", "9" * 5000, "1e3", "٣"])


values = st.text(max_size=12) | st.sampled_from(["--5", "-", "9" * 5000, "1e3", "٣"])


@given(texts | bent, senders, st.sampled_from(IDS), st.dictionaries(names, values))
def test_no_record_makes_a_parser_raise(
    message: str, sender: dict[str, str], message_id: str, more: dict[str, str]
) -> None:
    given_entry = entry(message, **{**sender, **more, "MESSAGE_ID": message_id})
    for parse in RECORDED:
        event = parse(given_entry)
        assert event is None or event.record.monotonic_usec == given_entry.monotonic_usec


@given(texts | bent, senders | st.just({"_SYSTEMD_UNIT": "sglang-demo.service", "_PID": "4321"}), st.sampled_from(IDS),
       st.dictionaries(names, values))  # fmt: skip
def test_a_record_is_believed_or_rejected_and_never_both(
    message: str, sender: dict[str, str], message_id: str, more: dict[str, str]
) -> None:
    given_entry = entry(message, **{**sender, **more, "MESSAGE_ID": message_id})
    found = rejected.parse(given_entry)
    believed = [parse for parse in RECORDED if parse(given_entry) is not None]
    assert found is None or not believed
    assert found is None or (len(found.record.message) <= 400 and found.claims)


@given(bent)
def test_the_gate_of_the_kernel_s_lines_lets_every_fact_through(message: str) -> None:
    given_entry = entry(message, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel")
    assert kernel.parse(given_entry) is None or kernel.interesting(message)


XIDS = [row[1] for row in TABLE if row[2] in (Xid, GpuLost)] + [
    "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    "NVRM: Xid (PCI:0000:41:00): 145, pid=7, name=a, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0xf1 0x7d 0x0b)",
]
pieces = st.sampled_from(["", ",", ")", "(", ":", "pid=", "'", "name=", "\n", "NVRM: Xid (PCI:", "0" * 40, "-1", "é"])
cuts = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40), pieces | st.text(max_size=6)), max_size=5)


@given(st.sampled_from(XIDS), cuts)
def test_e8_a_bent_xid_line_is_an_xid_or_nothing(line: str, cuts: list[tuple[int, int, str]]) -> None:
    """Whatever was cut out of it or put into it; what is made of it can be looked up and told."""
    for at, length, put in cuts:
        line = line[:at] + put + line[at + length :]
    event = kernel.parse(entry(line, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel"))
    if isinstance(event, Xid):
        assert 0 <= event.xid < 100_000
        assert event.xid_pid is None or event.xid_pid >= 0
        assert event.pci_bus_id == event.pci_bus_id.lower() != ""
        assert xid_catalog.kind(event.xid, line) in (None, *xid_catalog.Kind)
    assert xid_catalog.recovery(line) is None or "recovery action changed" in line.lower()


@pytest.mark.parametrize("line", XIDS)
def test_e8_a_long_xid_line_takes_linear_time(line: str) -> None:
    """Sixteen times the text in at most so many times the time, and some for a busy machine."""

    def seconds(times: int) -> float:
        filled = [line + put * (times * 4096 // len(put)) for put in ("a", "9", " ", ",", " caused by previous Xid ")]
        given_entries = [entry(text, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel") for text in filled]
        took = []
        for _ in range(5):
            began = time.process_time()
            for given_entry in given_entries:
                kernel.parse(given_entry)
                xid_catalog.recovery(given_entry.message)
            took.append(time.process_time() - began)
        return min(took)

    assert seconds(16) < 0.005 + 16 * 4 * seconds(1)


@given(texts, st.sampled_from(IDS), st.text(max_size=8))
def test_no_text_of_a_server_becomes_a_record(message: str, message_id: str, comm: str) -> None:
    forged = {"MESSAGE_ID": message_id, "UNIT": "sglang-demo.service", "SYSLOG_IDENTIFIER": "kernel"}
    own = {"_TRANSPORT": "stdout", "_PID": "77", "_UID": "990", "_COMM": comm, "_SYSTEMD_UNIT": "sglang-demo.service"}
    assert all(parse(entry(message, **{**forged, **own})) is None for parse in RECORDED)


@pytest.mark.parametrize(
    "repeated", ["a", "9", " ", "(", ",task=", ",task_memcg=", "Killed process 1 (", "x: ", "\n", "GPU 0:"]
)
def test_long_lines_take_no_long_time(repeated: str) -> None:
    filler = repeated * (100_000 // len(repeated))
    began = time.process_time()
    for line in KNOWN:
        for message in (line + filler, filler + line, line[:20] + filler + line[20:]):
            for parse in RECORDED:
                parse(entry(message, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel"))
                parse(entry(message, _TRANSPORT="journal", _PID="1"))
            rejected.parse(entry(message, _TRANSPORT="stdout", _PID="77"))
            rejected.parse(entry(message, _TRANSPORT="journal", _PID="77", MESSAGE_ID=systemd.UNIT_PROCESS_EXIT))
    # Two hundred lines of 100 kB: a pattern that takes quadratic time needs minutes.
    assert time.process_time() - began < 10


@given(
    st.binary(max_size=400)
    | st.lists(st.sampled_from([b"\n", b"A=b\n", b"__REALTIME_TIMESTAMP=5\n", b"M\n", b"\xff"])).map(b"".join)
)
def test_no_bytes_make_a_reader_raise(data: bytes) -> None:
    for read in (read_export, read_json):
        assert all(isinstance(found, Entry) for found in read(io.BytesIO(data)))
