"""cgroup, process and host on made trees of /proc and /sys/fs/cgroup; the unit's state on a stand-in for the bus."""

import os
from pathlib import Path
from typing import Any

import pytest

from forensics.errors import SourceError
from forensics.sources import cgroup, host, process
from forensics.sources.unit import LiveUnit, UnitBus, launch_blocking

GROUP = "/sglang.slice/sglang-demo.service"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def unified(tmp_path: Path, **files: str) -> Path:
    own = {f"{GROUP[1:]}/{name.replace('_', '.', 1)}": text for name, text in files.items()}
    return tree(tmp_path, {"cgroup.controllers": "cpu memory pids\n", **own})


def test_a_cgroup_of_version_2(tmp_path: Path) -> None:
    mount = unified(
        tmp_path,
        memory_current="7340032\n",
        memory_peak="9437184\n",
        memory_max="max\n",
        memory_events="low 0\nhigh 3\nmax 12\noom 2\noom_kill 1\n",
    )
    tree(mount, {f"{GROUP[1:]}/memory.swap.current": "4096\n"})
    sampled = cgroup.sample(GROUP, mount)
    assert sampled is not None
    assert (sampled.current_bytes, sampled.peak_bytes, sampled.max_bytes) == (7340032, 9437184, None)
    assert (sampled.swap_current_bytes, sampled.oom, sampled.oom_kill) == (4096, 2, 1)
    assert (sampled.record.source, sampled.record.ref) == ("cgroup", str(mount / GROUP[1:]))


def test_an_old_kernel_has_no_peak(tmp_path: Path) -> None:
    sampled = cgroup.sample(GROUP, unified(tmp_path, memory_current="5\n", memory_max="4096\n"))
    assert sampled is not None
    assert (sampled.current_bytes, sampled.peak_bytes, sampled.max_bytes, sampled.oom_kill) == (5, None, 4096, None)


@pytest.mark.parametrize("tree_of_processes", ["systemd", "unified"])
def test_a_cgroup_of_version_1(tmp_path: Path, tree_of_processes: str) -> None:
    folder = f"memory{GROUP}"
    mount = tree(
        tmp_path,
        {
            f"{tree_of_processes}{GROUP}/cgroup.procs": "",
            f"{folder}/memory.usage_in_bytes": "77\n",
            f"{folder}/memory.max_usage_in_bytes": "99\n",
            f"{folder}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{folder}/memory.failcnt": "4\n",
            f"{folder}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        },
    )
    sampled = cgroup.sample(GROUP, mount)
    assert sampled is not None
    assert (sampled.current_bytes, sampled.peak_bytes, sampled.max_bytes) == (77, 99, None)
    assert (sampled.oom, sampled.oom_kill) == (4, 1)


def test_a_cgroup_without_memory_controller_is_a_named_gap(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no memory controller in the unit's cgroup /sglang") as raised:
        cgroup.sample(GROUP, unified(tmp_path, cgroup_procs=""))
    assert raised.value.source == "cgroup"


def test_a_cgroup_that_is_gone_is_nothing(tmp_path: Path) -> None:
    assert cgroup.sample(GROUP, unified(tmp_path)) is None
    assert process.sample(GROUP, 41, mount=tmp_path) is None


def stat(pid: int, comm: str, ppid: int, start: int, pages: int) -> str:
    return f"{pid} ({comm}) S {ppid} {' '.join('0' for _ in range(17))} {start} 1000 {pages} 18446744073709551615\n"


def test_the_processes_of_a_cgroup_and_of_those_below_it(tmp_path: Path) -> None:
    mount = unified(tmp_path / "cgroup", cgroup_procs="41\n42\n43\n")
    tree(mount, {f"{GROUP[1:]}/below/cgroup.procs": "44\n"})
    proc = tree(
        tmp_path / "proc",
        {
            "41/stat": stat(41, "python3", 1, 500, 10),
            "41/cmdline": "/opt/bin/python\0-m\0sglang.launch_server\0--api-key\0sesame\0",
            "42/stat": stat(42, "a) S 9 (b", 41, 501, 20),
            "42/cmdline": "sglang::scheduler_TP0\0",
            "44/stat": stat(44, "zombie", 41, 502, 0),
            "44/cmdline": "",
        },
    )
    sampled = process.sample(GROUP, 41, proc=proc, mount=mount)
    assert sampled is not None
    assert sampled.main_pid == 41
    assert [(each.pid, each.ppid, each.comm) for each in sampled.processes] == [
        (41, 1, "python3"),
        (42, 41, "a) S 9 (b"),
        (44, 41, "zombie"),
    ]
    page = os.sysconf("SC_PAGESIZE")
    assert [(each.rss_bytes, each.start_ticks) for each in sampled.processes] == [
        (10 * page, 500),
        (20 * page, 501),
        (0, 502),
    ]
    assert sampled.processes[1].cmdline == "sglang::scheduler_TP0"
    assert "--api-key" in sampled.processes[0].cmdline
    assert "sesame" not in repr(sampled)


def test_this_very_process_is_read_as_the_kernel_shows_it(tmp_path: Path) -> None:
    sampled = process.sample(GROUP, None, mount=unified(tmp_path, cgroup_procs=f"{os.getpid()}\n"))
    assert sampled is not None
    (own,) = sampled.processes
    assert (own.pid, own.ppid) == (os.getpid(), os.getppid())
    assert own.comm == Path("/proc/self/comm").read_text().strip()
    assert own.rss_bytes > 1 << 20


def test_the_host(tmp_path: Path) -> None:
    proc = tree(
        tmp_path,
        {
            "meminfo": "MemTotal:       16000 kB\nMemAvailable:    9000 kB\nSwapFree: 10 kB\nHugePages_Total: 0\n",
            "vmstat": "pgfault 12\noom_kill 3\n",
        },
    )
    sampled = host.sample(proc)
    assert (sampled.total_bytes, sampled.available_bytes) == (16000 * 1024, 9000 * 1024)
    assert (sampled.swap_free_bytes, sampled.vmstat_oom_kill) == (10 * 1024, 3)


def test_a_kernel_without_the_counter(tmp_path: Path) -> None:
    assert host.sample(tree(tmp_path, {"meminfo": "MemTotal: 1 kB\n", "vmstat": "pgfault 1\n"})).vmstat_oom_kill is None
    (tmp_path / "vmstat").unlink()
    assert host.sample(tmp_path).vmstat_oom_kill is None


def test_a_host_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="meminfo"):
        host.sample(tmp_path)


def test_this_very_host() -> None:
    assert 0 < host.sample().available_bytes < host.sample().total_bytes


class StandInBus(UnitBus):
    """Answers as PID 1 would: a real one is not to be had in a unit test."""

    def __init__(self, units: list[tuple[Any, ...]], properties: dict[str, Any]) -> None:
        super().__init__()
        self.units, self.properties, self.asked = units, properties, list[str]()

    def _call(self, method: str, signature: bytes, args: list[Any]) -> Any:
        assert (method, signature, args) == ("ListUnitsByPatterns", b"asas", [[], [b"sglang-*.service"]])
        return self.units

    def _get(self, path: bytes, interface: str, name: str, signature: bytes) -> Any:
        self.asked.append(path.decode())
        return self.properties.get(name)


def listed(name: str, load: str, active: str, sub: str) -> tuple[Any, ...]:
    words = (name, "SGLang", load, active, sub, "", f"/unit/{name}", 0, "", "/")
    return tuple(word.encode() if isinstance(word, str) else word for word in words)


INVOCATION = "1c" * 16
PROPERTIES = {
    "InvocationID": list(bytes.fromhex(INVOCATION)),
    "Result": b"oom-kill",
    "ExecMainPID": 4321,
    "ExecMainCode": 2,
    "ExecMainStatus": 9,
    "NRestarts": 3,
    "ControlGroup": b"/sglang.slice/sglang-demo.service",
    "TimeoutStopUSec": 60_000_000,
    "MemoryMax": (1 << 64) - 1,
    "OOMPolicy": b"stop",
}


def test_units_that_are_not_loaded_or_at_rest_are_not_asked_about() -> None:
    bus = StandInBus(
        [
            listed("sglang-demo.service", "loaded", "failed", "failed"),
            listed("sglang-old.service", "loaded", "inactive", "dead"),
            listed("sglang-gone.service", "not-found", "failed", "failed"),
        ],
        PROPERTIES,
    )
    assert bus.live_units(["sglang-*.service"]) == [
        LiveUnit(
            unit="sglang-demo.service",
            invocation_id=INVOCATION,
            active_state="failed",
            sub_state="failed",
            path="/unit/sglang-demo.service",
        )
    ]
    assert set(bus.asked) == {"/unit/sglang-demo.service"}


def test_a_unit_s_state_is_believed_while_the_invocation_is_the_same() -> None:
    bus = StandInBus([listed("sglang-demo.service", "loaded", "failed", "failed")], dict(PROPERTIES))
    (live,) = bus.live_units(["sglang-*.service"])
    state = bus.sample(live)
    assert state is not None
    assert (state.result, state.exec_main_code, state.exec_main_status, state.n_restarts) == ("oom-kill", 2, 9, 3)
    assert (state.timeout_stop_usec, state.memory_max_bytes, state.oom_policy) == (60_000_000, None, "stop")
    assert (state.active_state, state.control_group) == ("failed", "/sglang.slice/sglang-demo.service")
    bus.properties["InvocationID"] = list(bytes.fromhex("2c" * 16))
    assert bus.sample(live) is None
    bus.properties["InvocationID"] = None
    assert bus.live_units(["sglang-*.service"]) == []


def test_a_bus_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(SourceError, match="does not answer over D-Bus") as raised:
        UnitBus().live_units(["sglang-*.service"])
    assert raised.value.source == "unit"


@pytest.mark.parametrize(
    ("environment", "blocking"),
    [
        ((), False),
        (("CUDA_LAUNCH_BLOCKING=1", "HF_TOKEN=x"), True),
        (("CUDA_LAUNCH_BLOCKING=0",), False),
        (("AMD_SERIALIZE_KERNEL=3",), True),
        (("ASCEND_LAUNCH_BLOCKING=1",), True),
    ],
)
def test_kernels_that_are_waited_for_show_in_the_units_environment(
    environment: tuple[str, ...], *, blocking: bool
) -> None:
    assert launch_blocking(environment) is blocking
