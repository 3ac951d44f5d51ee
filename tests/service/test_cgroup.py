"""The unit's cgroup, in trees as each kind of system has them."""

from pathlib import Path

import pytest

from service.cgroup import Cgroup, own_cgroup

UNIT = "sglang.slice/sglang-demo.service"


def tree(root: Path, proc_cgroup: str, *files: str) -> tuple[Path, Path]:
    (root / "proc").mkdir()
    (root / "proc/cgroup").write_text(proc_cgroup)
    for name in files:
        path = root / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("11\n22\n" if name.endswith("cgroup.procs") else "")
    return root / "proc", root / "sys"


@pytest.mark.parametrize("control", ["", "/.control"])
def test_v2(tmp_path: Path, control: str) -> None:
    files = ("cgroup.controllers", f"{UNIT}/cgroup.procs", f"{UNIT}/memory.events")
    proc, sys = tree(tmp_path, f"0::/{UNIT}{control}\n", *files)
    cgroup = own_cgroup(proc, sys)
    assert cgroup == Cgroup(f"/{UNIT}", "v2", processes=sys / UNIT, memory=sys / UNIT)
    assert cgroup.pids() == (11, 22)


def test_v2_without_the_memory_controller(tmp_path: Path) -> None:
    proc, sys = tree(tmp_path, f"0::/{UNIT}\n", "cgroup.controllers", f"{UNIT}/cgroup.procs")
    assert own_cgroup(proc, sys) == Cgroup(f"/{UNIT}", "v2", processes=sys / UNIT, memory=None)


def test_hybrid(tmp_path: Path) -> None:
    lines = f"9:memory:/{UNIT}\n1:name=systemd:/{UNIT}\n0::/{UNIT}\n"
    files = ("unified/cgroup.procs", f"unified/{UNIT}/cgroup.procs", f"memory/{UNIT}/memory.limit_in_bytes")
    proc, sys = tree(tmp_path, lines, *files)
    cgroup = own_cgroup(proc, sys)
    assert cgroup == Cgroup(f"/{UNIT}", "hybrid", processes=sys / "unified" / UNIT, memory=sys / "memory" / UNIT)
    assert cgroup.pids() == (11, 22)


def test_v1(tmp_path: Path) -> None:
    lines = f"9:cpu,cpuacct:/\n8:memory:/{UNIT}\n1:name=systemd:/{UNIT}\n"
    proc, sys = tree(tmp_path, lines, f"systemd/{UNIT}/cgroup.procs", f"memory/{UNIT}/memory.limit_in_bytes")
    assert own_cgroup(proc, sys) == Cgroup(f"/{UNIT}", "v1", sys / "systemd" / UNIT, sys / "memory" / UNIT)


def test_v1_root_group_is_not_the_units(tmp_path: Path) -> None:
    lines = f"8:memory:/\n1:name=systemd:/{UNIT}\n"
    proc, sys = tree(tmp_path, lines, f"systemd/{UNIT}/cgroup.procs", "memory/memory.limit_in_bytes")
    assert own_cgroup(proc, sys) == Cgroup(f"/{UNIT}", "v1", sys / "systemd" / UNIT, memory=None)


def test_nothing_to_read(tmp_path: Path) -> None:
    assert own_cgroup(tmp_path / "none", tmp_path) is None
    proc, sys = tree(tmp_path, "8:memory:/\n")
    assert own_cgroup(proc, sys) is None
    (sys / "cgroup.controllers").parent.mkdir()
    (sys / "cgroup.controllers").touch()
    assert own_cgroup(proc, sys) is None


def test_vanished_group_has_no_processes(tmp_path: Path) -> None:
    assert Cgroup("/x", "v2", processes=tmp_path / "gone", memory=None).pids() == ()
