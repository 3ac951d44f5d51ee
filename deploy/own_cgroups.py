"""A machine's own cgroups, where no systemd on the host gives each container a scope."""

from pathlib import Path


def make(name: str) -> list[Path]:
    """A cgroup for this machine in each hierarchy that systemd uses.

    Where no systemd on the host gives each container a scope, nspawn takes the cgroup it was
    started in: two machines started from one cgroup would find each other's units in theirs.
    """
    made = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        where, _, what = line.partition(" - ")
        if what.startswith("cgroup2 ") or (what.startswith("cgroup ") and "name=systemd" in what):
            cgroup = Path(where.split()[4]) / f"inquest-{name}"
            cgroup.mkdir(exist_ok=True)
            made.append(cgroup)
    return made


def remove(name: str) -> None:
    for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
        top = Path(mount) / f"inquest-{name}"
        for cgroup in sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True):
            cgroup.rmdir()
        if top.exists():
            top.rmdir()
