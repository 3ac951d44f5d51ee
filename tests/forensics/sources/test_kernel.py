"""The kernel's wordings, release by release, and who is believed to be the kernel."""

import dataclasses
from typing import Any

import pytest

from forensics.events import (
    DriverNoMemory,
    Event,
    GpuLost,
    HungTask,
    OomKill,
    OomLimit,
    OomVictim,
    Segfault,
    Unparsed,
    Xid,
)
from forensics.sources import kernel
from tests.forensics.sources.entries import entry, from_server, kernel_line

KIB = 1024


def facts(event: Event | None) -> tuple[type[Event], dict[str, Any]]:
    assert event is not None
    named = {field.name: getattr(event, field.name) for field in dataclasses.fields(event) if field.name != "record"}
    return type(event), named


def oom_kill(**known: Any) -> dict[str, Any]:
    return {"oom_memcg": None, "task_memcg": None, "uid": None, **known}


TABLE: list[tuple[str, str, type[Event], dict[str, Any]]] = [
    (
        "6.1, memory cgroup",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=sglang-demo.service,mems_allowed=0,"
        "oom_memcg=/sglang.slice/sglang-demo.service,task_memcg=/sglang.slice/sglang-demo.service,"
        "task=sglang::schedul,pid=51234,uid=990",
        OomKill,
        oom_kill(
            constraint="CONSTRAINT_MEMCG",
            oom_memcg="/sglang.slice/sglang-demo.service",
            task_memcg="/sglang.slice/sglang-demo.service",
            task="sglang::schedul",
            oom_victim_pid=51234,
            uid=990,
        ),
    ),
    (
        "an ancestor's limit",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/sglang.slice,"
        "task_memcg=/sglang.slice/sglang-demo.service,task=python3,pid=812,uid=990",
        OomKill,
        oom_kill(
            constraint="CONSTRAINT_MEMCG",
            oom_memcg="/sglang.slice",
            task_memcg="/sglang.slice/sglang-demo.service",
            task="python3",
            oom_victim_pid=812,
            uid=990,
        ),
    ),
    (
        "the whole host, two memory nodes and a node mask",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=0-1,3,cpuset=/,mems_allowed=0-1,3,global_oom,"
        "task_memcg=/system.slice/etl.service,task=java,pid=77,uid=0",
        OomKill,
        oom_kill(
            constraint="CONSTRAINT_NONE", task_memcg="/system.slice/etl.service", task="java", oom_victim_pid=77, uid=0
        ),
    ),
    (
        "without cpusets and memory cgroups",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=4100,uid=1000",
        OomKill,
        oom_kill(constraint="CONSTRAINT_NONE", task="python3", oom_victim_pid=4100, uid=1000),
    ),
    (
        "a NUMA node is full",
        "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=1,cpuset=/,mems_allowed=0-1,global_oom,"
        "task_memcg=/sglang.slice/sglang-demo.service,task=pt_main_thread,pid=9,uid=990",
        OomKill,
        oom_kill(
            constraint="CONSTRAINT_MEMORY_POLICY",
            task_memcg="/sglang.slice/sglang-demo.service",
            task="pt_main_thread",
            oom_victim_pid=9,
            uid=990,
        ),
    ),
    (
        "a comm that imitates the end of the line",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,"
        "task=,pid=1,uid=0,pid=6022,uid=1000",
        OomKill,
        oom_kill(constraint="CONSTRAINT_NONE", task_memcg="/a", task=",pid=1,uid=0", oom_victim_pid=6022, uid=1000),
    ),
    (
        "a cgroup whose name imitates another's kill",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        "oom_memcg=/user.slice/x,task_memcg=/sglang.slice/sglang-demo.service,"
        "task_memcg=/user.slice/x,task_memcg=/sglang.slice/sglang-demo.service/y,task=a,pid=5,uid=1000",
        OomKill,
        oom_kill(
            constraint="CONSTRAINT_MEMCG",
            oom_memcg="/user.slice/x,task_memcg=/sglang.slice/sglang-demo.service",
            task_memcg="/user.slice/x,task_memcg=/sglang.slice/sglang-demo.service/y",
            task="a",
            oom_victim_pid=5,
            uid=1000,
        ),
    ),
    (
        "6.1, victim of a memory cgroup",
        "Memory cgroup out of memory: Killed process 51234 (sglang::schedul) total-vm:91234568kB, "
        "anon-rss:61234567kB, file-rss:81234kB, shmem-rss:4096kB, UID:990 pgtables:131072kB oom_score_adj:0",
        OomVictim,
        {
            "victim_pid": 51234,
            "task": "sglang::schedul",
            "memcg": True,
            "anon_rss_bytes": 61234567 * KIB,
            "file_rss_bytes": 81234 * KIB,
            "shmem_rss_bytes": 4096 * KIB,
        },
    ),
    (
        "5.1, victim of the host",
        "Out of memory: Killed process 310 (python3) total-vm:8123kB, anon-rss:7001kB, file-rss:12kB, shmem-rss:0kB",
        OomVictim,
        {
            "victim_pid": 310,
            "task": "python3",
            "memcg": False,
            "anon_rss_bytes": 7001 * KIB,
            "file_rss_bytes": 12 * KIB,
            "shmem_rss_bytes": 0,
        },
    ),
    (
        "the allocating task itself",
        "Out of memory (oom_kill_allocating_task): Killed process 8 (a) total-vm:9kB, anon-rss:7kB, file-rss:1kB, "
        "shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0",
        OomVictim,
        {
            "victim_pid": 8,
            "task": "a",
            "memcg": False,
            "anon_rss_bytes": 7 * KIB,
            "file_rss_bytes": KIB,
            "shmem_rss_bytes": 0,
        },
    ),
    (
        "4.19, first line: the parent may survive",
        "Memory cgroup out of memory: Kill process 2210 (launcher) score 1021 or sacrifice child",
        OomKill,
        oom_kill(constraint="CONSTRAINT_MEMCG", task="launcher", oom_victim_pid=2210),
    ),
    (
        "4.19, second line: the child that died",
        "Killed process 2214 (worker) total-vm:40000kB, anon-rss:30000kB, file-rss:20kB, shmem-rss:0kB",
        OomVictim,
        {
            "victim_pid": 2214,
            "task": "worker",
            "memcg": None,
            "anon_rss_bytes": 30000 * KIB,
            "file_rss_bytes": 20 * KIB,
            "shmem_rss_bytes": 0,
        },
    ),
    (
        "4.19, the cgroups",
        "Task in /kubepods/pod7/c9 killed as a result of limit of /kubepods/pod7",
        OomKill,
        oom_kill(
            constraint="CONSTRAINT_MEMCG",
            oom_memcg="/kubepods/pod7",
            task_memcg="/kubepods/pod7/c9",
            task="",
            oom_victim_pid=None,
        ),
    ),
    (
        "3.10 of RHEL 7",
        "Killed process 1400 (java), UID 1001, total-vm:5000kB, anon-rss:4000kB, file-rss:8kB, shmem-rss:0kB",
        OomVictim,
        {
            "victim_pid": 1400,
            "task": "java",
            "memcg": None,
            "anon_rss_bytes": 4000 * KIB,
            "file_rss_bytes": 8 * KIB,
            "shmem_rss_bytes": 0,
        },
    ),
    (
        "3.10, without shmem",
        "Killed process 1400 (java) total-vm:5000kB, anon-rss:4000kB, file-rss:8kB",
        OomVictim,
        {
            "victim_pid": 1400,
            "task": "java",
            "memcg": None,
            "anon_rss_bytes": 4000 * KIB,
            "file_rss_bytes": 8 * KIB,
            "shmem_rss_bytes": None,
        },
    ),
    (
        "a comm that imitates sizes",
        "Memory cgroup out of memory: Killed process 90 () total-vm:1kB,) total-vm:2000kB, anon-rss:1500kB, "
        "file-rss:3kB, shmem-rss:0kB, UID:1000 pgtables:8kB oom_score_adj:0",
        OomVictim,
        {
            "victim_pid": 90,
            "task": ") total-vm:1kB,",
            "memcg": True,
            "anon_rss_bytes": 1500 * KIB,
            "file_rss_bytes": 3 * KIB,
            "shmem_rss_bytes": 0,
        },
    ),
    (
        "the cgroup's figures",
        "memory: usage 125829120kB, limit 125829120kB, failcnt 1873",
        OomLimit,
        {"usage_bytes": 120 * KIB**3, "limit_bytes": 120 * KIB**3},
    ),
    (
        "Xid with a process",
        "NVRM: Xid (PCI:0000:C1:00): 31, pid=70011, name=sglang::schedul, Ch 00000008, intr 00000000. MMU Fault: "
        "ENGINE GRAPHICS GPC3 GPCCLIENT_T1_2 faulted @ 0x7f33_1a2b3c00. Fault is of type FAULT_PDE ACCESS_TYPE_READ",
        Xid,
        {"pci_bus_id": "0000:c1:00", "xid": 31, "xid_pid": 70011, "name": "sglang::schedul", "caused_by_xid": None},
    ),
    (
        "Xid of a MIG instance",
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:03 GPU-CI:01): 13, pid=880, name=python3, Graphics SM Warp Exception",
        Xid,
        {"pci_bus_id": "0000:3b:00", "xid": 13, "xid_pid": 880, "name": "python3", "caused_by_xid": None},
    ),
    (
        "Xid without a process",
        "NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row (0x1a) marked for remapping",
        Xid,
        {"pci_bus_id": "0000:3b:00", "xid": 63, "xid_pid": None, "name": None, "caused_by_xid": None},
    ),
    (
        "Xid whose process is not known",
        "NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        Xid,
        {"pci_bus_id": "0000:b3:00", "xid": 79, "xid_pid": None, "name": None, "caused_by_xid": None},
    ),
    (
        "Xid that follows another",
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=880, name=python3, Ch 00000009 caused by previous Xid 31",
        Xid,
        {"pci_bus_id": "0000:3b:00", "xid": 45, "xid_pid": 880, "name": "python3", "caused_by_xid": 31},
    ),
    (
        "Xid of an old driver",
        "NVRM: Xid (0000:02:00): 13, 0003 00000000 0000a0c0 000002bc 00000000 00000000",
        Xid,
        {"pci_bus_id": "0000:02:00", "xid": 13, "xid_pid": None, "name": None, "caused_by_xid": None},
    ),
    (
        "lost, one line",
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        GpuLost,
        {"pci_bus_id": "0000:b3:00.0"},
    ),
    (
        "lost, the last of three lines",
        "NVRM: fallen off the bus and is not responding to commands.",
        GpuLost,
        {"pci_bus_id": None},
    ),
    (
        "lost, three lines in one record",
        "NVRM: The NVIDIA GPU 0000:B3:00.0\nNVRM: (PCI ID: 10de:2335) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
        GpuLost,
        {"pci_bus_id": "0000:b3:00.0"},
    ),
    (
        "the driver has no memory",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
        "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359",
        DriverNoMemory,
        {},
    ),
    (
        "segfault",
        "sglang::schedul[7012]: segfault at 18 ip 00007f2b8c0d1e2f sp 00007ffd0a1b2c30 error 4 in libtorch.so[7f2b+99]",
        Segfault,
        {
            "comm": "sglang::schedul",
            "fault_pid": 7012,
            "fault": "segfault at 18 ip 00007f2b8c0d1e2f sp 00007ffd0a1b2c30 error 4 in libtorch.so[7f2b+99]",
        },
    ),
    (
        "a comm that imitates a segfault",
        "a[1]: segfault [7013]: segfault at 0 ip 0 sp 0 error 6",
        Segfault,
        {"comm": "a[1]: segfault ", "fault_pid": 7013, "fault": "segfault at 0 ip 0 sp 0 error 6"},
    ),
    (
        "general protection",
        "traps: python3[7014] general protection fault ip:7f10 sp:7ffe error:0 in libcuda.so.1[7f10+200]",
        Segfault,
        {
            "comm": "python3",
            "fault_pid": 7014,
            "fault": "general protection fault ip:7f10 sp:7ffe error:0 in libcuda.so.1[7f10+200]",
        },
    ),
    (
        "illegal instruction",
        "traps: python3[7015] trap invalid opcode ip:7f10 sp:7ffe error:0 in flash.so[7f10+200]",
        Segfault,
        {
            "comm": "python3",
            "fault_pid": 7015,
            "fault": "trap invalid opcode ip:7f10 sp:7ffe error:0 in flash.so[7f10+200]",
        },
    ),
    (
        "arm64",
        "python3[7016]: unhandled level 2 translation fault (11) at 0x00000010, esr 0x92000006",
        Segfault,
        {
            "comm": "python3",
            "fault_pid": 7016,
            "fault": "unhandled level 2 translation fault (11) at 0x00000010, esr 0x92000006",
        },
    ),
    (
        "hung task, a comm with colons",
        "INFO: task sglang::schedul:7017 blocked for more than 241 seconds.",
        HungTask,
        {"comm": "sglang::schedul", "hung_pid": 7017, "seconds": 241},
    ),
]


@pytest.mark.parametrize(("message", "fact", "named"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_each_wording(message: str, fact: type[Event], named: dict[str, Any]) -> None:
    event = kernel.parse(kernel_line(message))
    assert facts(event) == (fact, named)
    assert event is not None
    assert event.record.source == "kernel"
    assert event.record.message == message
    assert kernel.interesting(message)


@pytest.mark.parametrize(
    "message",
    [
        "oom_reaper: reaped process 310 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "pt_main_thread invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        " oom_kill_process.cold+0xb/0x10",
        "Memory cgroup out of memory: OOM victim 310 (python3) is already exiting. Skip killing the task",
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:2335) installed in this system has",
        "NVRM: GPU at PCI:0000:b3:00: GPU-11112222-3333-4444-5555-666677778888",
        "eth0: Link is Up",
        "",
    ],
)
def test_lines_without_a_fact(message: str) -> None:
    assert kernel.parse(kernel_line(message)) is None


@pytest.mark.parametrize(
    "message",
    [
        "Out of memory: terminated task 310 (python3), a wording of a kernel to come",
        "oom-kill:victim=310",
        "Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled",
    ],
)
def test_an_unknown_wording_about_oom_is_not_silent(message: str) -> None:
    assert facts(kernel.parse(kernel_line(message))) == (Unparsed, {"about": "oom"})


@pytest.mark.parametrize("bus", ["0000:41:00", "00000018:01:00", "0000:C1:00"])
@pytest.mark.parametrize("instance", ["", " GPU-I:05", " GPU-I:05 GPU-CI:00"])
@pytest.mark.parametrize(
    ("process", "pid", "name"),
    [
        ("", None, None),
        ("pid=812, name=sglang::schedul, ", 812, "sglang::schedul"),
        ("pid='812', name=python3, ", 812, "python3"),
        ("pid='<unknown>', name=<unknown>, ", None, None),
    ],
)
@pytest.mark.parametrize(("suffix", "caused_by"), [("", None), (" caused by previous Xid 79", 79)])
def test_e10_every_form_that_the_driver_prints(
    bus: str, instance: str, process: str, pid: int | None, name: str | None, suffix: str, caused_by: int | None
) -> None:
    """`Xid (PCI:%04x:%02x:%02x[ GPU-I:%02u[ GPU-CI:%02u]]): %u, [pid=%u, name=%s, ]%s[ caused by previous Xid %u]` of
    kernel_rc.c (595), and the older quoted pids. The instance of a MIG is not a part of the bus address."""
    line = f"NVRM: Xid (PCI:{bus}{instance}): 45, {process}Ch 00000008{suffix}"
    named = {"pci_bus_id": bus.lower(), "xid": 45, "xid_pid": pid, "name": name, "caused_by_xid": caused_by}
    assert facts(kernel.parse(kernel_line(line))) == (Xid, named)


OOM = TABLE[7][1]


def test_a_server_that_prints_a_kill_line_is_not_the_kernel() -> None:
    assert kernel.parse(from_server(OOM, SYSLOG_IDENTIFIER="kernel")) is None


def test_root_writing_to_dev_kmsg_is_not_the_kernel() -> None:
    # journald gives such a record the transport, but the writer's own identifier and facility.
    assert kernel.parse(entry(OOM, _TRANSPORT="kernel", SYSLOG_FACILITY="1")) is None
