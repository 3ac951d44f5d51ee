"""The parsers as fuzz targets: each takes any bytes, and raises nothing but what it says it raises.

`python -m tests.fuzz.run TARGET` runs one under atheris.
"""

import io
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import BinaryIO, cast

from forensics import xid_catalog
from forensics.analyze import analyze, properties, senders, stamps, structured, text, wrappings
from forensics.analyze.forms import recognise
from forensics.analyze.lines import Line, backwards, forwards
from forensics.analyze.plain import PlainLog
from forensics.analyze.text import Clock
from forensics.analyze.units import Attribution
from forensics.entry import Entry
from forensics.errors import InputError
from forensics.events import Xid
from forensics.sources import RECORDED, rejected
from forensics.sources.export import read_export, read_json
from forensics.sources.server import ServerLog

NOW = datetime(2026, 5, 18, tzinfo=UTC)
_SENDERS = (
    {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"},
    {"_TRANSPORT": "journal", "_PID": "1", "UNIT": "a.service", "INVOCATION_ID": "bb"},
    {"_TRANSPORT": "stdout", "_PID": "47", "_SYSTEMD_UNIT": "a.service", "_SYSTEMD_INVOCATION_ID": "bb"},
)


def _stream(data: bytes) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(io.BytesIO(data)))


def _lines(data: bytes) -> Iterator[Line]:
    return forwards(_stream(data))


def fuzz_forms(data: bytes) -> None:
    recognise(data, NOW)


def fuzz_stamps(data: bytes) -> None:
    for line in _lines(data):
        found = stamps.parse(line.text, NOW)
        if found is not None and found[0].realtime_usec is not None:
            stamps.when(found[0].realtime_usec)


def fuzz_senders(data: bytes) -> None:
    for line in _lines(data):
        senders.syslog(line.text, NOW)
        senders.kernel(line.text, NOW)


def fuzz_wrappings(data: bytes) -> None:
    for line in _lines(data):
        wrappings.unwrap(line.text, NOW)
    for record in structured.objects(_lines(data)):
        wrappings.record_of(record)


def fuzz_lines(data: bytes) -> None:
    assert sum(1 for _ in backwards(_stream(data))) >= 0
    assert all(b"\n" not in line.raw for line in _lines(data))


def fuzz_plain(data: bytes) -> None:
    log = PlainLog("x", NOW, Clock(NOW), lambda usec: ("text-0", usec))
    for line in _lines(data):
        if not log.skim(line):
            log.feed(line)
    log.close()


def fuzz_syslog(data: bytes) -> None:
    survey = text.survey(_lines(data), NOW)
    for _ in text.syslog_entries(_lines(data), "x", NOW, Attribution(survey, "text-0"), Clock(NOW)):
        pass


def fuzz_kernel(data: bytes) -> None:
    for _ in text.kernel_entries(_lines(data), "x", NOW, Clock(NOW)):
        pass


def fuzz_structured(data: bytes) -> None:
    for _ in structured.json_entries(_lines(data)):
        pass
    for _ in structured.verbose_entries(_lines(data)):
        pass
    for _ in structured.dmesg_json_entries(_lines(data), "x"):
        pass
    for _ in read_export(_stream(data)):
        pass
    for _ in read_json(_stream(data)):
        pass


def fuzz_records(data: bytes) -> None:
    """Each line as a record of the kernel, of PID 1, and of a server."""
    log = ServerLog()
    for number, line in enumerate(_lines(data)):
        for sender in _SENDERS:
            fields = {"MESSAGE": line.text, "_BOOT_ID": "b0", **sender}
            entry = Entry(cursor="", boot_id="b0", monotonic_usec=number, realtime_usec=number, fields=fields)
            rejected.parse(entry)
            for parse in RECORDED:
                event = parse(entry)
                if isinstance(event, Xid):
                    xid_catalog.kind(event.xid, event.record.message)
                    xid_catalog.recovery(event.record.message)
            log.feed(entry)
    log.flush_all()


def fuzz_properties(data: bytes) -> None:
    for snapshot in properties.show(_lines(data), "x", NOW):
        list(snapshot.facts())
    for item in properties.status(_lines(data), "x", NOW):
        if isinstance(item, properties.Snapshot):
            list(item.facts())


def fuzz_analyze(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(prefix="inquest-fuzz-") as file:
        file.write(data)
        file.flush()
        try:
            found = analyze([file.name])
        except InputError:
            return
        assert found.crashes or found.reason


TARGETS: dict[str, Callable[[bytes], None]] = {
    name.removeprefix("fuzz_"): target for name, target in list(globals().items()) if name.startswith("fuzz_")
}

SEEDS: tuple[bytes, ...] = (
    b"[2026-05-17 08:00:00] server_args=ServerArgs(model_path='/m', port=30000)\n"
    b"[2026-05-17 08:00:09 TP0] Decode batch, #running-req: 2, token usage: 0.04, gen throughput (token/s): 4.2\n"
    b"[2026-05-17 08:00:10 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    b'  File "/x/scheduler.py", line 3, in run\nRuntimeError: CUDA error: misaligned address\n'
    b"[2026-05-17 08:00:10] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n",
    b"May 17 08:00:00 maple systemd[1]: Started sglang-maple.service - Maple.\n"
    b"May 17 08:00:01 maple python3[47]: [2026-05-17 08:00:01] hello\n"
    b"May 17 08:00:02 maple kernel: Out of memory: Killed process 47 (python3) total-vm:9kB, anon-rss:8kB\n"
    b"May 17 08:00:02 maple systemd[1]: sglang-maple.service: Main process exited, code=killed, status=9/KILL\n"
    b"May 17 08:00:02 maple systemd[1]: sglang-maple.service: Failed with result 'signal'.\n",
    b"[  912.104411] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    b"task_memcg=/a.service,task=python,pid=7,uid=0\n4,12,912104411,-;NVRM: Xid (PCI:0000:41:00): 79, pid=7\n",
    b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1779005000000000\n__MONOTONIC_TIMESTAMP=900\n_BOOT_ID=aa\n_PID=1\n"
    b"_TRANSPORT=journal\nUNIT=a.service\nINVOCATION_ID=bb\nMESSAGE\n\x05\x00\x00\x00\x00\x00\x00\x00hello\n\n",
    b'{"__REALTIME_TIMESTAMP":"1779005000000000","_BOOT_ID":"aa","MESSAGE":[104,105],"_TRANSPORT":"kernel"}\n',
    b'{\n   "dmesg": [\n      {\n         "pri": 4,\n'
    b'         "time": 9.5,\n         "msg": "hello"\n      }\n   ]\n}\n',
    b"Sun 2026-05-17 08:00:00.000000 UTC [s=aa;i=1;b=bb;m=1f;t=2f;x=3]\n    MESSAGE=hello\n    _PID=1\n",
    b"Id=sglang-maple.service\nActiveState=failed\nResult=signal\nExecMainCode=2\nExecMainStatus=9\n"
    b"TimeoutStopUSec=1min 30s\nInvocationID=7c1d9f0e2b3a4c5d8e6f7a8b9c0d1e2f\n"
    b"ExecMainExitTimestamp=Sun 2026-05-17 08:00:45 UTC\n",
    b"\xc3\x97 sglang-maple.service - Maple\n     Loaded: loaded\n     Active: failed (Result: signal) since Sun "
    b"2026-05-17 08:00:45 UTC; 3min ago\n   Main PID: 47 (code=killed, signal=KILL)\n\n"
    b"May 17 08:00:01 maple python3[47]: hello\n",
    b'{"log":"[2026-05-17 08:00:01] hello\\n","stream":"stderr","time":"2026-05-17T08:00:01.5Z"}\n',
    b"2026-05-17T08:00:01.5Z stderr P half a li\n2026-05-17T08:00:01.5Z stderr F ne\n",
    b"(EngineCore_DP0 pid=95) ERROR 05-17 08:00:01 [core.py:7] Traceback (most recent call last):\n",
    b"NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 45, pid=880, name=python3, Ch 9 caused by previous Xid 31\n"
    b"NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n"
    b"NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x9b1f 0x0bf6)\n",
)
