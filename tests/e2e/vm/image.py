"""The virtual machine's image: Debian 12 with a memory controller, Inquest installed and running.

Made in three steps that are cached apart: a tree of Debian with a kernel, an ext4 image of it with
Inquest in it, and the state of the machine when it has booted and inquestd is up.
"""

import functools
import gzip
import os
import shutil
import subprocess
from pathlib import Path

from deploy import environment, stamp
from deploy.host import ROOTFS
from deploy.overlay import overlaid
from deploy.progress import run
from tests.e2e import cache, trees

HERE = Path(__file__).resolve().parent
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "systemd-coredump",
    "systemd-oomd",
    "dbus",
    "python3",
    "linux-image-cloud-amd64",
    "kmod",
    "procps",
    "busybox-static",
)
_MODULES = (
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
    "fs/overlayfs/overlay",
)
# Software emulation is slow: what the tests do not need is not started.
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "getty.target", "systemd-oomd.service", "systemd-oomd.socket", "systemd-firstboot.service",
    "systemd-pstore.service", "remote-fs.target", "systemd-random-seed.service", "systemd-networkd.service",
    "systemd-networkd.socket", "systemd-timesyncd.service", "systemd-sysusers.service", "systemd-udevd.service",
    "systemd-udev-trigger.service", "systemd-udevd-kernel.socket", "systemd-udevd-control.socket",
    "modprobe@.service", "systemd-modules-load.service", "systemd-binfmt.service", "kmod-static-nodes.service",
    "proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "systemd-repart.service", "systemd-tmpfiles-setup-dev.service", "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path", "systemd-remount-fs.service", "systemd-logind.service",
    "systemd-user-sessions.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
    "systemd-machine-id-commit.service", "systemd-tmpfiles-clean.timer", "systemd-initctl.socket",
)  # fmt: skip


@functools.cache  # one image a session, also when somebody edits the checkout meanwhile
def image() -> Path:
    """A folder with root.img, vmlinuz and initrd for the present checkout."""
    environment.install()
    tree = trees.tree(trees.DEBIAN, "vm", PACKAGES)
    digest = stamp.digest([HERE, ROOTFS, environment.VENV / stamp.NAME], str(tree))

    def make(folder: Path) -> None:
        (kernel,) = (tree / "boot").glob("vmlinuz-*")
        shutil.copy(kernel, folder / "vmlinuz")
        _make_initrd(tree, folder / "initrd")
        with overlaid(tree) as root:
            _furnish(root)
            # Neither journal nor checksums: it is only ever read.
            run(
                [
                    "mke2fs",
                    "-q",
                    "-t",
                    "ext4",
                    "-O",
                    "^has_journal,^metadata_csum",
                    "-d",
                    root,
                    folder / "root.img",
                    "1200M",
                ]
            )

    return cache.made("vm-image", digest, make)


def _furnish(root: Path) -> None:
    """Turn the bare tree into the machine: Inquest, the agent, and nothing that a test does not need."""
    shutil.copytree(ROOTFS, root, dirs_exist_ok=True)
    (root / "etc/inquest/servers/demo.toml").unlink()
    shutil.copytree(environment.VENV, root / "opt/inquest/venv", symlinks=True)
    (root / "usr/local/bin/inquest").symlink_to(environment.VENV / "bin/inquest")
    shutil.copy(HERE / "agent.py", root / "opt/inquest-agent.py")
    system = root / "etc/systemd/system"
    shutil.copy(HERE / "inquest-agent.service", system)
    for wants in [*system.glob("*.wants"), *system.glob("*.requires")]:
        shutil.rmtree(wants)
    (system / "multi-user.target.wants").mkdir()
    for unit in ("/etc/systemd/system/inquest-agent.service", "/usr/local/lib/systemd/system/inquestd.service"):
        (system / "multi-user.target.wants" / Path(unit).name).symlink_to(unit)
    for unit in _MASKED:
        (system / unit).unlink(missing_ok=True)
        (system / unit).symlink_to("/dev/null")
    generators = root / "etc/systemd/system-generators"
    generators.mkdir(exist_ok=True)
    for generator in (root / "lib/systemd/system-generators").iterdir():
        (generators / generator.name).symlink_to("/dev/null")
    (system / "default.target").unlink(missing_ok=True)
    (system / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (root / "etc/fstab").write_text("")
    (root / "etc/hostname").write_text("inquest-vm\n")
    (root / "etc/machine-id").write_text("3b6e0b5c6f5d4b0c9a6f6f3f7f1e2d4c\n")
    (root / "var/log/journal").mkdir(exist_ok=True)
    run(["systemd-sysusers", f"--root={root}", "inquest.conf"])


def _make_initrd(tree: Path, initrd: Path) -> None:
    """A gzipped cpio of static busybox, seven modules and the script `init`."""
    folder = initrd.with_suffix(".d")
    (folder / "bin").mkdir(parents=True)
    (folder / "modules").mkdir()
    shutil.copy(tree / "bin/busybox", folder / "bin/busybox")
    shutil.copy(HERE / "init", folder / "init")
    os.chmod(folder / "init", 0o755)
    (kernel,) = (tree / "lib/modules").glob("*/kernel")
    for module in _MODULES:
        shutil.copy(kernel / f"{module}.ko", folder / "modules")
    names = "\n".join(str(p.relative_to(folder)) for p in sorted(folder.rglob("*")))
    archive = subprocess.run(
        [tree / "bin/busybox", "cpio", "-o", "-H", "newc"],
        cwd=folder,
        input=names.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    initrd.write_bytes(gzip.compress(archive.stdout, compresslevel=6))
    shutil.rmtree(folder)
