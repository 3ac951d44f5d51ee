"""Whole OOM blocks as kernels from 3.10 to 6.12 print them, made anew: header, stack, figures, tasks, kill, reaper.

`{pid}`, `{comm}`, `{path}` and `{oom}` are the victim, its cgroup, and the cgroup whose limit was hit.
"""

from typing import NamedTuple


class Kernel(NamedTuple):
    """What one release prints for a kill at a cgroup's limit, and for one of the whole host."""

    release: str
    memcg: str
    host: str


def _sizes(rss_kb: int = 24_117_248, shmem: str = ", shmem-rss:0kB") -> str:
    return f"total-vm:91234568kB, anon-rss:{rss_kb}kB, file-rss:2048kB{shmem}"


_STACK_3 = """\
CPU: 3 PID: {pid} Comm: {comm} Kdump: loaded Not tainted 3.10.0-1160.71.1.el7.x86_64 #1
Call Trace:
 [<ffffffffa5b865a9>] dump_stack+0x19/0x1b
 [<ffffffffa5b81fcb>] dump_header+0x90/0x229
 [<ffffffffa55c251d>] oom_kill_process+0x2cd/0x490
 [<ffffffffa5643b6a>] mem_cgroup_oom_synchronize+0x55a/0x580
 [<ffffffffa55c2dd4>] pagefault_out_of_memory+0x14/0x90
"""
_STACK_6 = """\
CPU: 11 PID: {pid} Comm: {comm} Tainted: P           OE      {release} #1
Call Trace:
 <TASK>
 dump_stack_lvl+0x48/0x70
 dump_header+0x4a/0x250
 oom_kill_process.cold+0xb/0x10
 out_of_memory+0x101/0x520
 mem_cgroup_out_of_memory+0x145/0x160
 try_charge_memcg+0x6c4/0x7a0
 </TASK>
"""
_FIGURES = """\
memory: usage 25165824kB, limit 25165824kB, failcnt 211
swap: usage 0kB, limit 9007199254740988kB, failcnt 0
Memory cgroup stats for {oom}:
anon 24696061952
file 1048576
kernel_stack 2129920
"""
_FIGURES_3 = """\
Task in {path} killed as a result of limit of {oom}
memory: usage 25165824kB, limit 25165824kB, failcnt 211
memory+swap: usage 25165824kB, limit 9007199254740988kB, failcnt 0
kmem: usage 0kB, limit 9007199254740988kB, failcnt 0
Memory cgroup stats for {oom}: cache:88KB rss:25165736KB rss_huge:0KB mapped_file:4KB swap:0KB active_anon:25165732KB
"""
_HOST = """\
Mem-Info:
active_anon:15911232 inactive_anon:81233 isolated_anon:0
 active_file:311 inactive_file:97 isolated_file:32
Node 0 Normal free:90112kB min:90224kB low:154512kB high:218800kB
Free swap  = 0kB
Total swap = 0kB
16777216 pages RAM
411203 pages reserved
"""
_TASKS_3 = """\
[ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name
[{pid}]   990 {pid} 22808642  6029824   12033        0             0 {comm}
"""
_TASKS_5 = """\
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[  {pid}]   990  {pid} 22808642  6029824 50331648        0             0 {comm}
"""
_TASKS_6_8 = """\
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[  {pid}]   990  {pid} 22808642  6029824  6029312      512         0 50331648        0             0 {comm}
"""
_SUMMARY = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={unit},mems_allowed=0,oom_memcg={oom},task_memcg={path},task={comm},pid={pid},uid=990\n"  # noqa: E501 - one line of the kernel
_GLOBAL = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset={unit},mems_allowed=0-1,global_oom,task_memcg={path},task={comm},pid={pid},uid=990\n"  # noqa: E501
_TAIL = ", UID:990 pgtables:49152kB oom_score_adj:0\n"
_REAPED = "oom_reaper: reaped process {pid} ({comm}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n"
_MEMCG_5 = "Memory cgroup out of memory: Killed process {pid} ({comm}) " + _sizes()
_HOST_5 = "Out of memory: Killed process {pid} ({comm}) " + _sizes()


def _invoked(gfp: str) -> str:
    return f"cuda-EvtHandlr invoked oom-killer: {gfp}, order=0, oom_score_adj=0\n"


def _before_5(release: str, gfp: str, sizes: str, *, uid: str = "") -> Kernel:
    kill = "Kill process {pid} ({comm}) score 981 or sacrifice child\nKilled process {pid} ({comm})" + uid + " " + sizes
    head = _invoked(gfp) + _STACK_3
    return Kernel(
        release,
        f"{head}{_FIGURES_3}{_TASKS_3}Memory cgroup out of memory: {kill}\n",
        f"{head}{_HOST}{_TASKS_3}Out of memory: {kill}\n",
    )


def _since_5_4(release: str, tasks: str, stack: str = _STACK_6, reaped: str = _REAPED) -> Kernel:
    head = _invoked("gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE)") + stack.replace("{release}", release)
    return Kernel(
        release,
        f"{head}{_FIGURES}{tasks}{_SUMMARY}{_MEMCG_5}{_TAIL}{reaped}",
        f"{head}{_HOST}{tasks}{_GLOBAL}{_HOST_5}{_TAIL}{reaped}",
    )


_HEAD_5 = _invoked("gfp_mask=0xcc0(GFP_KERNEL)") + _STACK_6.replace("{release}", "5.0.0-38-generic")
_SACRIFICE = "Kill process {pid} ({comm}) score 981 or sacrifice child\nKilled process {pid} ({comm}) " + _sizes()

KERNELS = (
    _before_5("3.10.0-1160.el7", "gfp_mask=0xd0", _sizes(shmem=", shmem-rss:0kB"), uid=", UID 990,"),
    _before_5("3.10.0 of CentOS 7.2", "gfp_mask=0x2000d0", _sizes(shmem="")),
    _before_5("4.14.355-amzn2", "gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null)", _sizes()),
    _before_5("4.19.0-27-amd64", "gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null)", _sizes()),
    Kernel(
        "5.0.0-38-generic",
        f"{_HEAD_5}{_FIGURES}{_TASKS_5}{_SUMMARY}Memory cgroup out of memory: {_SACRIFICE}\n",
        f"{_HEAD_5}{_HOST}{_TASKS_5}{_GLOBAL}Out of memory: {_SACRIFICE}\n",
    ),
    Kernel(
        "5.3.0-76-generic",
        f"{_HEAD_5}{_FIGURES}{_TASKS_5}{_SUMMARY}{_MEMCG_5}\n",
        f"{_HEAD_5}{_HOST}{_TASKS_5}{_GLOBAL}{_HOST_5}\n",
    ),
    _since_5_4("5.4.0-216-generic", _TASKS_5),
    _since_5_4("5.10.216-tegra", _TASKS_5),
    _since_5_4("5.15.0-1064-azure", _TASKS_5, reaped=""),
    _since_5_4("6.1.0-28-amd64", _TASKS_5),
    _since_5_4("6.8.0-51-generic", _TASKS_6_8),
    _since_5_4("6.12.9-cloud-amd64", _TASKS_6_8, _STACK_6.replace("CPU: 11 PID", "CPU: 11 UID: 990 PID")),
)

DISTRIBUTIONS = {
    "RHEL 6, the user before the name": "Killed process {pid}, UID 990, ({comm}) " + _sizes(),
    "RHEL 7, the user behind the name": "Killed process {pid} ({comm}), UID 990, " + _sizes(),
    "SLES 12, a colon": "Killed process {pid}, UID: 990, ({comm}) " + _sizes(shmem=""),
    "Azure Linux 5.15, sysctl oom_kill_allocating_task": (
        "Out of memory (oom_kill_allocating_task): Killed process {pid} ({comm}) "
        + _sizes()
        + ", UID:990 pgtables:9kB "
        "oom_score_adj:0"
    ),
    "Container-Optimized OS 5.15, memory.oom.group": (
        "Tasks in {path} are going to be killed due to memory.oom.group set\n"
        "Memory cgroup out of memory: Killed process {pid} ({comm}) " + _sizes() + ", UID:990 pgtables:49152kB "
        "oom_score_adj:-997"
    ),
}
"""The line that names the victim, where all others were dropped."""

UNKNOWN = (
    "Out of memory: Terminated task {pid} ({comm}), 24117248kB freed",
    "Memory cgroup out of memory: {comm}[{pid}] was chosen",
    "oom_kill: pid={pid} comm={comm} memcg={path}",
    "oom-kill:victim={pid},policy=bpf,memcg={path}",
    "OOM killed: {comm} {pid} in {path}",
    "Killed process tree of {pid} ({comm}): 9 processes",
    "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled",
)
"""Words that no kernel has used so far, but a coming one might."""
