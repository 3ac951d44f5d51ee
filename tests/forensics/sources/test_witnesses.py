"""Core dumps, userspace OOM killers, and what ExecStopPost= left: the words, and who is believed."""

import pytest

import service.remains
from forensics.entry import Entry
from forensics.events import CoreDump, Remains, UserspaceOomKill
from forensics.sources import RECORDED, coredump, oomkillers, remains
from tests.forensics.sources.entries import INVOCATION, UNIT, entry, from_server

CORE = {
    "MESSAGE_ID": coredump.COREDUMP,
    "COREDUMP_PID": "6001",
    "COREDUMP_COMM": "sglang::schedul",
    "COREDUMP_EXE": "/usr/bin/python3.11",
    "COREDUMP_SIGNAL": "11",
    "COREDUMP_UNIT": UNIT,
}


def test_a_core_dump_by_the_unprivileged_systemd_coredump() -> None:
    event = coredump.parse(
        entry(
            "Process 6001 (sglang::schedul) of user 990 dumped core.\n\nStack trace of thread 6001:",
            _UID="997",
            _SYSTEMD_UNIT="systemd-coredump@3-6002-0.service",
            COREDUMP_TRUNCATED="1",
            **CORE,
        )
    )
    assert isinstance(event, CoreDump)
    assert (event.coredump_pid, event.comm, event.signal, event.unit) == (6001, "sglang::schedul", 11, UNIT)
    assert (event.exe, event.truncated) == ("/usr/bin/python3.11", True)


def test_a_core_dump_before_systemd_251_is_root_s() -> None:
    assert isinstance(coredump.parse(entry("Process 6001 …", _UID="0", **CORE)), CoreDump)


def test_a_server_cannot_dump_somebody_else_s_core() -> None:
    assert coredump.parse(from_server("Process 6001 (python3) of user 0 dumped core.", **CORE)) is None


@pytest.mark.parametrize("missing", ["COREDUMP_PID", "COREDUMP_SIGNAL"])
def test_a_core_dump_that_does_not_say_of_whom_is_none(missing: str) -> None:
    assert coredump.parse(entry("…", _UID="0", **{**CORE, missing: "?"})) is None


KILLS = [
    (
        "systemd-oomd.service",
        "Killed /sglang.slice/sglang-demo.service due to memory pressure for /sglang.slice being 61.20% > 50.00% "
        "for > 20s with reclaim activity",
        ("systemd-oomd", None, None, "/sglang.slice/sglang-demo.service", UNIT),
    ),
    (
        "systemd-oomd.service",
        "Killed /sglang.slice/sglang-demo.service/worker due to memory used (31241) / total (32000) and swap used "
        "(950) / total (1000) being more than 90%",
        ("systemd-oomd", None, None, "/sglang.slice/sglang-demo.service/worker", UNIT),
    ),
    (
        "earlyoom.service",
        'sending SIGTERM to process 6100 uid 990 "sglang::schedul": oom_score 1300, oom_score_adj 0, VmRSS 90211 MiB, '
        'cmdline "sglang::scheduler_TP0"',
        ("earlyoom", 6100, "sglang::schedul", None, None),
    ),
    (
        "earlyoom.service",
        'sending SIGKILL to process 6101 uid 990 "python3": badness 980, VmRSS 100 MiB',
        ("earlyoom", 6101, "python3", None, None),
    ),
    (
        "earlyoom.service",
        "Killing process 'python3' with signal 9, pid: 6102, badness: 711, VmRSS: 100 MiB",
        ("earlyoom", 6102, "python3", None, None),
    ),
    ("earlyoom.service", "Killing process 6103 python3", ("earlyoom", 6103, "python3", None, None)),
    ("nohang.service", "  Sending SIGKILL to the victim", ("nohang", None, None, None, None)),
    ("nohang-desktop.service", "Sending SIGTERM to the victim; …", ("nohang", None, None, None, None)),
]


@pytest.mark.parametrize(("unit", "message", "said"), KILLS, ids=[row[1][:50] for row in KILLS])
def test_userspace_oom_killers(unit: str, message: str, said: tuple[str, int | None, str | None, str | None]) -> None:
    event = oomkillers.parse(entry(message, _SYSTEMD_UNIT=unit))
    assert isinstance(event, UserspaceOomKill)
    assert (event.tool, event.victim_pid, event.comm, event.cgroup, event.unit) == said
    assert oomkillers.parse(from_server(message, SYSLOG_IDENTIFIER=unit.removesuffix(".service"))) is None


@pytest.mark.parametrize(
    "message",
    [
        "Considered 3 cgroups for killing, top candidates were:",
        "low memory! at or below SIGTERM limits: mem 9.1%, swap 9.9%",
        "process 6100 exited after 0.3 seconds",
    ],
)
@pytest.mark.parametrize("unit", sorted(oomkillers.KILLERS))
def test_what_they_say_otherwise(unit: str, message: str) -> None:
    assert oomkillers.parse(entry(message, _SYSTEMD_UNIT=unit)) is None


def written(**fields: str) -> Entry:
    own = {"_UID": "0", "_SYSTEMD_UNIT": UNIT, "_SYSTEMD_INVOCATION_ID": INVOCATION}
    return entry("…", **{**own, "MESSAGE_ID": remains.MESSAGE_ID, **fields})


def test_the_remains_have_the_writer_s_id() -> None:
    assert service.remains.MESSAGE_ID == remains.MESSAGE_ID


def test_the_remains_have_the_writer_s_field_names() -> None:
    told = {"SERVICE_RESULT": "oom-kill", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL", "INVOCATION_ID": INVOCATION}
    event = remains.parse(written(**service.remains.record("demo", told, None)))
    assert isinstance(event, Remains)
    assert (event.service_result, event.exit_code, event.exit_status) == ("oom-kill", "killed", "KILL")
    assert (event.memory, event.left, event.gpus) == (None, None, None)
    assert event.blind == ("the unit's cgroup could not be made out",)


def test_the_remains_of_a_cgroup_v2() -> None:
    event = remains.parse(
        written(
            INQUEST_SERVICE_RESULT="signal",
            INQUEST_MEMORY_CURRENT="2048",
            INQUEST_MEMORY_PEAK="123456789",
            INQUEST_MEMORY_MAX="max",
            INQUEST_MEMORY_EVENTS_OOM="1",
            INQUEST_MEMORY_EVENTS_OOM_KILL="2",
        )
    )
    assert isinstance(event, Remains)
    assert event.memory is not None
    assert (event.memory.current_bytes, event.memory.peak_bytes, event.memory.max_bytes) == (2048, 123456789, None)
    assert (event.memory.oom, event.memory.oom_kill) == (1, 2)


def test_the_remains_of_a_cgroup_v1() -> None:
    event = remains.parse(
        written(
            INQUEST_MEMORY_LIMIT_IN_BYTES="4096", INQUEST_MEMORY_FAILCNT="7", INQUEST_MEMORY_OOM_CONTROL_OOM_KILL="1"
        )
    )
    assert isinstance(event, Remains)
    assert event.memory is not None
    assert (event.memory.max_bytes, event.memory.oom, event.memory.oom_kill) == (4096, 7, 1)


def test_the_ground_as_it_was_found() -> None:
    event = remains.parse(
        written(
            INQUEST_LEFT_PROCESSES="6001 882 D sglang::schedul\n6002 883 S a name with spaces",
            INQUEST_GPUS="0 GPU-11 0 64424509440 150754820096\n1 GPU-22 ? ? ?",
            INQUEST_GPU_PROCESSES="0 6001 3221225472 left sglang::schedul\n0 77 ? other ollama run x.service",
            INQUEST_LAST_LOG_USEC="1772366399000000",
            INQUEST_GAPS="memory.peak: Is a directory; the journal did not answer within 0.5 s",
        )
    )
    assert isinstance(event, Remains)
    assert event.left is not None
    assert [(p.pid, p.start_ticks, p.state, p.comm) for p in event.left] == [
        (6001, 882, "D", "sglang::schedul"),
        (6002, 883, "S", "a name with spaces"),
    ]
    assert event.gpus is not None
    first, second = event.gpus
    assert (first.performance_state, first.used_bytes, first.total_bytes) == (0, 64424509440, 150754820096)
    assert [(u.pid, u.used_bytes, u.left, u.comm, u.unit) for u in first.uses] == [
        (6001, 3221225472, True, "sglang::schedul", ""),
        (77, None, False, "ollama run", "x.service"),
    ]
    assert (second.performance_state, second.used_bytes, second.total_bytes, second.uses) == (None, None, None, ())
    assert event.last_log_usec == 1772366399000000
    assert event.blind == ("memory.peak: Is a directory", "the journal did not answer within 0.5 s")


def test_a_ground_that_is_cut_off_costs_only_what_is_missing() -> None:
    event = remains.parse(
        written(INQUEST_LEFT_PROCESSES="6001 882\n\nx y z w", INQUEST_GPUS="0 GPU-11", INQUEST_GAPS="")
    )
    assert isinstance(event, Remains)
    assert (event.left, event.gpus, event.blind) == ((), (), ())


def test_only_root_leaves_remains() -> None:
    assert remains.parse(written(INQUEST_SERVICE_RESULT="oom-kill", _UID="990")) is None


def test_each_record_has_at_most_one_reader() -> None:
    assert len({parse.__module__ for parse in RECORDED}) == len(RECORDED)
    for given in (written(), entry("…", _UID="0", **CORE)):
        assert sum(parse(given) is not None for parse in RECORDED) == 1
