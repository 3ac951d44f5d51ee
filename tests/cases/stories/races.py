"""Deaths that come together: two servers in one second, a stop and a kill, a kill and the record of another's."""

from tests.cases.stories import case
from tests.cases.story import IDS, Journal, Life

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"
LOGIND = "98268866d1d54a499c4e98921d93bc40"
SIGQUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."


def two(j: Journal) -> tuple[Life, Life]:
    first, second = j.life("sglang-alder.service"), j.life("sglang-birch.service")
    first.up()
    second.up()
    return first, second


def going_down(j: Journal) -> None:
    j.service("systemd-logind.service", "The system will reboot now!", comm="systemd-logind", _TRANSPORT="journal",
              MESSAGE_ID=LOGIND)  # fmt: skip


def missed(j: Journal) -> None:
    j.write({"_TRANSPORT": "driver", "_PID": "402", "_COMM": "systemd-journal", "MESSAGE_ID": IDS["missed"],
             "_SYSTEMD_UNIT": "systemd-journald.service", "MESSAGE": "Missed 4106 kernel messages"})  # fmt: skip


# --- two servers in one second ----------------------------------------------------------------------------------


@case("kernel-oom/near-miss-neighbour-killed-by-hand-in-the-same-second")
def oom_and_kill(j: Journal) -> None:
    """One server is OOM-killed, the other by somebody; their records stand between each other's."""
    oomed, killed = two(j)
    j.oom(oomed.cgroup, oomed.main, "python", limit=oomed.cgroup)
    oomed.counted_oom()
    killed.exit("killed", 9)
    oomed.exit("killed", 9)
    killed.failed("signal")
    oomed.failed("oom-kill")
    oomed.expect("kernel-oom", "confirmed", subclass="memcg-main")
    killed.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom",))


@case("kernel-oom/two-servers-at-the-limit-of-their-slice")
def two_ooms(j: Journal) -> None:
    """The slice's limit takes both; the kernel's summaries come first, then both sizes."""
    lives = two(j)
    for life in lives:
        j.kernel("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=sglang.slice,mems_allowed=0,"
                 f"oom_memcg=/sglang.slice,task_memcg={life.cgroup},task=python,pid={life.main},uid=990")  # fmt: skip
    for number, life in enumerate(lives, 1):
        j.kernel(f"Memory cgroup out of memory: Killed process {life.main} (python) total-vm:90000kB, "
                 f"anon-rss:{number}1000kB, file-rss:0kB, shmem-rss:0kB, UID:990 pgtables:99kB oom_score_adj:0")  # fmt: skip
    for life in reversed(lives):
        life.counted_oom().killed(9, "oom-kill")
        life.expect("kernel-oom", "confirmed", subclass="memcg-main", says=("/sglang.slice", str(life.main)))


@case("stop-timeout/near-miss-neighbour-killed-in-the-same-second")
def timeout_and_kill(j: Journal) -> None:
    stopped, killed = two(j)
    stopped.stopping().wait(60).timed_out("stop-sigterm")
    killed.exit("killed", 9)
    stopped.systemd_kills()
    killed.failed("signal")
    stopped.killed(9, "timeout").stopped()
    stopped.expect("stop-timeout", "confirmed")
    killed.expect("external-signal", "likely", ruled_out=("stop-timeout",))


@case("kernel-oom/near-miss-instance-1-is-not-instance-10")
def template_units(j: Journal) -> None:
    """Instances of one template in one slice."""
    slice_path = "/system.slice/system-sglang.slice"
    first = j.life("sglang@1.service", slice_path=slice_path)
    tenth = j.life("sglang@10.service", slice_path=slice_path)
    first.up()
    tenth.up()
    j.oom(first.cgroup, first.main, "python", limit=slice_path)
    first.counted_oom().killed(9, "oom-kill")
    tenth.killed()
    first.expect("kernel-oom", "confirmed", subclass="memcg-main")
    tenth.expect("external-signal", "likely")


@case("kernel-oom/escaped-unit-name")
def escaped(j: Journal) -> None:
    life = j.life(r"sglang-llama\x2d3.service")
    life.up()
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main")


@case("kernel-oom/group-of-the-whole-slice")
def group_of_the_slice(j: Journal) -> None:
    """memory.oom.group of the slice: the summary names a neighbour, and only `Killed process` names ours."""
    life = j.life()
    life.up()
    j.oom("/sglang.slice/etl.service", 812, "etl", limit="/sglang.slice")
    j.kernel("Tasks in /sglang.slice are going to be killed due to memory.oom.group set")
    for pid, comm in (
        (life.main, "python"),
        (life.scheduler, "sglang::schedul"),
        (life.detokenizer, "sglang::detoken"),
    ):
        j.kernel(f"Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:9000kB, anon-rss:7000kB, "
                 "file-rss:1kB, shmem-rss:0kB, UID:990 pgtables:4kB oom_score_adj:0")  # fmt: skip
    life.killed(9, "signal")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main")


@case("kernel-oom/near-miss-the-same-unit-in-another-container")
def other_container(j: Journal) -> None:
    """Another container's unit of the same name is OOM-killed; ours works on for a minute, and is killed by hand."""
    life = j.life()
    life.up()
    j.oom(f"/machine.slice/machine-two.scope/payload{life.cgroup}", 88012, "python", limit="/machine.slice")
    life.serve(30).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("kernel-oom/numa-node-full")
def numa(j: Journal) -> None:
    """Bound to one memory node, which is full; the host is not."""
    life = j.life()
    life.up()
    j.kernel("oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=1,cpuset=/,mems_allowed=0-1,global_oom,"
             f"task_memcg={life.cgroup},task=python,pid={life.main},uid=990")  # fmt: skip
    j.kernel(f"Out of memory: Killed process {life.main} (python) total-vm:90000000kB, anon-rss:60000000kB, file-rss:1kB, "
             "shmem-rss:0kB, UID:990 pgtables:4kB oom_score_adj:0")  # fmt: skip
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="global-main", says=("NUMA nodes",), says_not=("whole host",))


@case("kernel-oom/kernel-4.19-before-the-first-line")
def old_kernel_no_line(j: Journal) -> None:
    """The whole host is short, no record names a cgroup, and which number main has nobody knows: likely, no more."""
    life = j.life(slice_path="/system.slice")
    life.starting().started().wait(5)
    j.kernel(f"Out of memory: Kill process {life.main} (python) score 905 or sacrifice child")
    j.kernel(f"Killed process {life.main} (python) total-vm:90000kB, anon-rss:70000kB, file-rss:1kB, shmem-rss:0kB")
    life.wait(0.1).killed(9, "signal")
    life.expect("kernel-oom", "likely", says=("names no cgroup",))


@case("kernel-oom/near-miss-kernel-4.19-another-program")
def old_kernel_other(j: Journal) -> None:
    life = j.life(slice_path="/system.slice")
    life.starting().started().wait(5)
    j.kernel("Out of memory: Kill process 918 (java) score 905 or sacrifice child")
    j.kernel("Killed process 918 (java) total-vm:90000kB, anon-rss:70000kB, file-rss:1kB, shmem-rss:0kB")
    life.wait(0.1).killed(9, "signal")
    life.expect("external-signal", "likely", ruled_out=("kernel-oom",))


@case("kernel-oom/storm-takes-a-rank-that-never-wrote")
def silent_rank(j: Journal) -> None:
    """A lone `Killed process`, of a number that only main's own word on its child names: likely, no more."""
    life = j.life()
    life.up()
    rank = life.scheduler + 7
    j.kernel(f"Out of memory: Killed process {rank} (sglang::schedul) total-vm:90000kB, anon-rss:70000kB, file-rss:1kB, "
             "shmem-rss:0kB, UID:990 pgtables:4kB oom_score_adj:0")  # fmt: skip
    life.wait(0.4).subprocess_died(-9, "scheduler_1", rank).self_kill()
    life.expect("kernel-oom", "likely", subclass="global-child", says=("names no cgroup",))


@case("kernel-oom/storm-takes-a-rank-as-it-loads")
def silent_rank_loading(j: Journal) -> None:
    """The same before any rank wrote a line: main does not name the number either."""
    life = j.life()
    life.starting().wait(3).say("server_args=ServerArgs(model_path='/srv/models/birch-8b', tp_size=2)")
    j.kernel("Out of memory: Killed process 5561 (sglang::schedul) total-vm:90000kB, anon-rss:70000kB, file-rss:1kB, "
             "shmem-rss:0kB, UID:990 pgtables:4kB oom_score_adj:0")  # fmt: skip
    life.wait(1).raised(
        "entrypoints/engine.py:1201 in _wait_for_schedulers",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
        "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect("kernel-oom", "likely", subclass="global-child", says=("names no cgroup",))


@case("kernel-oom/near-miss-storm-takes-another-servers-rank")
def others_rank(j: Journal) -> None:
    """The kernel's victim is a rank of another server; ours, whose number main names, was killed by somebody."""
    life = j.life()
    life.up()
    j.kernel("Out of memory: Killed process 5562 (sglang::schedul) total-vm:90000kB, anon-rss:70000kB, file-rss:1kB, "
             "shmem-rss:0kB, UID:990 pgtables:4kB oom_score_adj:0")  # fmt: skip
    life.wait(0.4).subprocess_died(-9).self_kill()
    life.expect("external-signal", "likely", subclass="sigkill-child", ruled_out=("kernel-oom",))


# --- steps around the start --------------------------------------------------------------------------------------


@case("kernel-oom/step-before-the-start")
def step_before(j: Journal) -> None:
    """ExecStartPre= is OOM-killed on cgroup v1: no notice, Result=signal. That a step failed is the consequence."""
    life = j.life(slice_path="/system.slice")
    life.starting()
    j.oom(life.cgroup, 7061, "python", limit=life.cgroup)
    life.exit("killed", 9, process="Control", command="ExecStartPre").failed("signal").start_failed()
    life.expect("kernel-oom", "confirmed", subclass="memcg-helper", phase="before-logging")


@case("kernel-oom/step-that-waits-for-the-server")
def step_after(j: Journal) -> None:
    life = j.life(slice_path="/system.slice")
    life.starting().load()
    j.oom(life.cgroup, 7062, "python", limit=life.cgroup)
    life.exit("killed", 9, process="Control", command="ExecStartPost").failed("signal").start_failed()
    life.expect("kernel-oom", "confirmed", subclass="memcg-helper", phase="startup")


@case("exec-failure/near-miss-a-helper-was-killed-minutes-before-the-step-failed")
def step_failed_by_itself(j: Journal) -> None:
    life = j.life()
    life.starting().load()
    j.oom(life.cgroup, 7063, "cc1plus", limit=life.cgroup)
    life.wait(240).exit("exited", 75, process="Control", command="ExecStartPost").failed("exit-code").start_failed()
    life.expect("exec-failure", "likely", subclass="execstartpost", says=("OOM killer had killed",))


@case("start-timeout/step-before-the-start")
def step_overdue(j: Journal) -> None:
    """ExecStartPre= took too long: that it then died of systemd's SIGTERM is no failure of its own."""
    life = j.life()
    life.starting().wait(90).timed_out("start-pre", "Terminating")
    life.exit("killed", 15, process="Control", command="ExecStartPre").failed("timeout").start_failed("timeout")
    life.expect("start-timeout", "confirmed", subclass="start-pre")


@case("configuration-error/stopped-as-it-failed")
def stopped_as_it_failed(j: Journal) -> None:
    """An administrator stops a unit that is starting, and in this moment it is refused: no `Stopping` says when."""
    life = j.life()
    life.starting().load().raised("server_args.py:812 in check_server_args", "ValueError: context_length is too large")
    life.wait(0.2).exit("exited", 1).failed("exit-code").stopped()
    life.expect("configuration-error", "confirmed", decisive="context_length")


# --- a stop and a kill -------------------------------------------------------------------------------------------


@case("kernel-oom/a-tenth-of-a-second-before-the-stop")
def before_the_stop(j: Journal) -> None:
    """The scheduler is OOM-killed; main has not noticed as an administrator stops the unit."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.scheduler, "sglang::schedul", limit=life.cgroup)
    life.counted_oom().wait(0.1).stopping().sigterm().wait(0.5).subprocess_died(-9).self_kill().stopped()
    life.expect("kernel-oom", "confirmed", subclass="memcg-child", says_not=("not to blame",))


@case("kernel-oom/main-in-the-midst-of-a-stop")
def in_the_stop(j: Journal) -> None:
    """It was draining in time; the kernel ended it."""
    life = j.life()
    life.up().stopping().sigterm().wait(3).drain(2)
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill").stopped()
    life.expect("kernel-oom", "confirmed", subclass="memcg-main", phase="shutdown", says_not=("not to blame",))


@case("clean-stop/near-miss-helper-killed-in-the-stop")
def helper_in_the_stop(j: Journal) -> None:
    life = j.life()
    life.up().stopping().sigterm().wait(1)
    j.oom(life.cgroup, 7064, "py-spy", limit=life.cgroup)
    life.counted_oom().wait(2).drain(0).success().stopped()
    life.expect("clean-stop", "confirmed", says=("OOM killer had killed",))


@case("stop-timeout/helper-killed-in-the-stop")
def helper_then_timeout(j: Journal) -> None:
    life = j.life()
    life.up().stopping().sigterm().wait(3)
    j.oom(life.cgroup, 7065, "py-spy", limit=life.cgroup)
    life.counted_oom().wait(60).drain(2).wait(27).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")
    life.stopped().expect("stop-timeout", "confirmed", subclass="stop-sigterm", says=("90 s",))


@case("external-signal/systemctl-kill-in-a-drain")
def impatient(j: Journal) -> None:
    """Stopped, and then killed through systemd, as it took too long for somebody."""
    life = j.life()
    life.up().stopping().sigterm().wait(20).drain(3).client_kill("SIGKILL").killed(9, "signal").stopped()
    life.expect("external-signal", "confirmed", subclass="systemctl-kill", phase="shutdown")


@case("python-exception/stopped-a-moment-later")
def stopped_a_moment_later(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(SERVE, "KeyError: 'rid-71'").wait(0.7).stopping().sigterm().wait(1).self_kill().stopped()
    life.expect("python-exception", "confirmed", decisive="KeyError", phase="serving")


@case("clean-stop/near-miss-exception-in-the-same-moment")
def exception_as_it_came(j: Journal) -> None:
    """The scheduler fails 0.3 s before PID 1's `Stopping`, which is less than the two ways to journald may differ by."""
    life = j.life()
    life.up().scheduler_raised(SERVE, "KeyError: 'rid-73'").wait(0.3).stopping().sigterm().wait(
        0.5
    ).self_kill().stopped()
    life.expect("clean-stop", "likely", says=("failed in the moment", "KeyError"))


@case("clean-stop/near-miss-core-in-the-same-moment")
def core_as_it_came(j: Journal) -> None:
    """A scheduler dumps core 0.3 s before PID 1's `Stopping`."""
    life = j.life()
    life.up().core(life.scheduler, "sglang::schedul").wait(0.3).stopping().sigterm().wait(1).self_kill().stopped()
    life.expect("clean-stop", "likely", says=("failed in the moment", "sglang::schedul crashed"))


@case("clean-stop/near-miss-exception-in-the-drain")
def exception_in_the_drain(j: Journal) -> None:
    """Asked for, and then the scheduler fails over its own shutdown."""
    life = j.life()
    life.up().stopping().sigterm().wait(0.2)
    life.scheduler_raised(SERVE, "RuntimeError: cannot schedule new futures after shutdown").wait(0.5).self_kill()
    life.stopped().expect("clean-stop", "confirmed", says=("While it was stopping, it also failed",))


@case("stop-timeout/restart-into-a-refused-configuration")
def restart_refused(j: Journal) -> None:
    """`systemctl restart` after an edit: the old run's stop times out, the new run is refused. Two deaths, two causes."""
    old, new = j.life(), j.life()
    old.up().stopping().wait(90).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped("restart")
    new.starting().load("speculative_num_draft_tokens=5").raised(
        "server_args.py:812 in check_server_args",
        "ValueError: speculative_num_draft_tokens must be divisible by speculative_eagle_topk",
    )
    new.exit("exited", 1).failed("exit-code").start_failed()
    old.expect("stop-timeout", "confirmed", phase="shutdown")
    new.expect("configuration-error", "confirmed", phase="startup")


@case("stop-timeout/sendsigkill-no")
def skipping_sigkill(j: Journal) -> None:
    """SendSIGKILL=no: systemd gives up waiting, and the server lives on outside of the unit."""
    life = j.life()
    life.up().stopping().sigterm().wait(90).timed_out("stop-sigterm", "Skipping SIGKILL").failed("timeout").stopped()
    life.expect("stop-timeout", "confirmed", says=("left it running", "SendSIGKILL=no", "90 s"))


@case("stop-timeout/abort-then-kill")
def abort_then_kill(j: Journal) -> None:
    """TimeoutStopFailureMode=abort, and the abort is not heard either."""
    life = j.life()
    life.up().stopping().wait(60).timed_out("stop-sigterm", "Aborting").systemd_kills(signal="SIGABRT").wait(60)
    life.timed_out("stop-watchdog").systemd_kills().killed(9, "timeout").stopped()
    life.expect("stop-timeout", "confirmed", says=("60 s",))


@case("stop-timeout/hangs-in-the-kernel")
def in_the_kernel(j: Journal) -> None:
    """SIGKILL does not help a process that waits in the GPU's driver."""
    life = j.life()
    life.up().stopping().wait(90).timed_out("stop-sigterm").systemd_kills().wait(90)
    life.pid1(f"{life.unit}: Processes still around after SIGKILL. Ignoring.").wait(90).timed_out("final-sigterm")
    life.pid1(f"{life.unit}: Processes still around after final SIGKILL. Entering failed mode.").failed("timeout")
    life.stopped().expect("stop-timeout", "confirmed", says=("hang in the kernel",))


@case("clean-stop/near-miss-stop-command-hangs")
def stop_command_hangs(j: Journal) -> None:
    """ExecStop= ran into the timeout; the server itself then ended at once."""
    life = j.life()
    life.up().stopping().wait(90).pid1(f"{life.unit}: Stopping timed out. Terminating.").sigterm().wait(2).drain(0)
    life.failed("timeout").stopped()
    life.expect("clean-stop", "confirmed", subclass="requested")


@case("external-signal/near-miss-killed-in-a-called-off-shutdown")
def called_off(j: Journal) -> None:
    """A reboot was announced and called off; the server worked on for an hour, and was killed by somebody."""
    life = j.life()
    life.up()
    going_down(j)
    life.serve(2).wait(4000).serve(2).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("external-signal/main-killed-children-run-into-the-timeout")
def children_linger(j: Journal) -> None:
    """KillMode=process: main was killed, a scheduler lingers until systemd ends it, and the next start finds nothing."""
    life = j.life()
    life.up().exit("killed", 9).wait(90).timed_out("final-sigterm")
    life.systemd_kills(life.scheduler, "sglang::schedul").failed("signal")
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("stop-timeout",))


@case("silent-exit/before-it-was-ready")
def protocol(j: Journal) -> None:
    """Type=notify: status 0 before READY=1 is a failure for systemd, and no clean stop."""
    life = j.life()
    life.starting().load().wait(1).failed("protocol").start_failed()
    life.expect("silent-exit", "likely", subclass="before-ready", ruled_out=("clean-stop",))


# --- systemd's own reasons -----------------------------------------------------------------------------------------


@case("kernel-oom/then-the-watchdog")
def then_the_watchdog(j: Journal) -> None:
    """The scheduler is OOM-killed, main hangs over it until systemd's watchdog fires."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.scheduler, "sglang::schedul", limit=life.cgroup)
    life.counted_oom().wait(60).pid1(f"{life.unit}: Watchdog timeout (limit 1min)!").systemd_kills(signal="SIGABRT")
    life.exit("dumped", 6).failed("watchdog")
    life.expect("kernel-oom", "confirmed", subclass="memcg-child")


@case("kernel-oom/then-the-start-timeout")
def then_the_start_timeout(j: Journal) -> None:
    """A rank is OOM-killed as it loads, and main of an old version waits for it until the start times out."""
    life = j.life()
    life.starting().load()
    j.oom(life.cgroup, life.scheduler, "sglang::schedul")
    life.counted_oom().wait(500).timed_out("start", "Terminating").killed(15, "timeout").start_failed("timeout")
    life.expect("kernel-oom", "confirmed", subclass="global-child", phase="startup")


@case("hang/watchdog-abort-not-heard")
def watchdog_not_heard(j: Journal) -> None:
    life = j.life()
    life.up().wait(60).pid1(f"{life.unit}: Watchdog timeout (limit 1min)!").systemd_kills(signal="SIGABRT").wait(90)
    life.timed_out("stop-watchdog").systemd_kills().killed(9, "watchdog")
    life.expect("hang", "confirmed", subclass="service-watchdog", ruled_out=("stop-timeout",))


@case("start-timeout/and-then-the-kill")
def start_timeout_kill(j: Journal) -> None:
    """The start took too long, and the server did not end on SIGTERM either: nobody asked for a stop."""
    life = j.life()
    life.starting().load().pools().wait(500).timed_out("start", "Terminating").wait(90).timed_out("stop-sigterm")
    life.systemd_kills().killed(9, "timeout").start_failed("timeout")
    life.expect("start-timeout", "confirmed", ruled_out=("stop-timeout",))


@case("userspace-oom-kill/the-whole-slice")
def whole_slice(j: Journal) -> None:
    """systemd-oomd kills a cgroup above ours; PID 1's record is the slice's."""
    life = j.life()
    life.up()
    j.service("systemd-oomd.service", "Killed /sglang.slice due to memory used (130110000128) / total (134217728000) and "
              "swap used (8500000000) / total (8589934592) being more than 90.00%")  # fmt: skip
    j.pid1("sglang.slice: systemd-oomd killed 12 process(es) in this unit.", "oomd", UNIT="sglang.slice")
    life.killed(9, "signal")
    life.expect("userspace-oom-kill", "confirmed", subclass="systemd-oomd")


@case("kernel-oom/earlyoom-had-asked-first")
def earlyoom_first(j: Journal) -> None:
    """earlyoom's SIGTERM began a drain; the kernel did not wait for it."""
    life = j.life()
    life.up()
    j.service("earlyoom.service", f'sending SIGTERM to process {life.main} uid 990 "python": oom_score 913, '
              'oom_score_adj 0, VmRSS 23100 MiB, cmdline "python"')  # fmt: skip
    life.sigterm().wait(2)
    j.oom(life.cgroup, life.main, "python")
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="global-main")


@case("userspace-oom-kill/near-miss-another-slice")
def another_slice(j: Journal) -> None:
    life = j.life()
    life.up()
    j.service("systemd-oomd.service", "Killed /sglang.slice2 due to memory pressure for /sglang.slice2 being 71% > 60% "
              "for > 30s with reclaim activity")  # fmt: skip
    j.pid1("user.slice: systemd-oomd killed 12 process(es) in this unit.", "oomd", UNIT="user.slice")
    life.killed(9, "signal")
    life.expect("external-signal", "likely", ruled_out=("userspace-oom-kill",))


# --- what is missing -----------------------------------------------------------------------------------------------


@case("kernel-oom/journal-begins-in-the-midst-of-the-run")
def begins_in_the_midst(j: Journal) -> None:
    """Rotated away: the kernel's record stands before the first one that tells of this run, which is its end."""
    life = j.life()
    j.oom("/system.slice/etl.service", 917, "etl")
    j.wait(2)
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.wait(0.3).killed(9, "signal")
    life.expect("kernel-oom", "likely", subclass="memcg-main", says_not=("not logged a single line",))


@case("unexplained-kill/journal-begins-in-the-midst-of-the-run")
def begins_with_the_end(j: Journal) -> None:
    """Nothing is known from before the end: silence excludes nothing."""
    life = j.life()
    j.pid1("systemd-tmpfiles-clean.service: Deactivated successfully.", UNIT="systemd-tmpfiles-clean.service")
    life.wait(30).killed(9, "signal")
    life.expect("unexplained-kill", "likely", says=("begins in the midst",), says_not=("not logged a single line",))


@case("unexplained-kill/kernel-messages-missed-counter-unread")
def ring_overrun(j: Journal) -> None:
    """The kernel's ring ran over in a storm of other lines, in the second of the death."""
    life = j.life()
    life.up()
    missed(j)
    life.wait(0.1).killed()
    life.expect("unexplained-kill", "likely", says=("Missed 4106 kernel messages",))


@case("kernel-oom/kernel-messages-missed-systemd-counted")
def ring_overrun_counted(j: Journal) -> None:
    life = j.life()
    life.up()
    missed(j)
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="counted")


@case("external-signal/kernel-messages-missed-counter-at-zero")
def ring_overrun_zero(j: Journal) -> None:
    """The lines are lost, the unit's counter is not: no OOM kill."""
    life = j.life()
    life.up()
    missed(j)
    life.exit("killed", 9).remains("signal", "killed", "KILL", oom_kill=0).failed("signal")
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom",))


@case("unexplained-kill/helper-killed-half-a-minute-before")
def helper_half_a_minute(j: Journal) -> None:
    """An idle server: whether its compiler's OOM kill, which is known, has to do with the kill of main is not."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, 7066, "cicc", limit=life.cgroup)
    life.counted_oom().wait(30).killed()
    life.expect("unexplained-kill", "likely", says=("does not fit this end", "cicc"), says_not=("was not found",))


@case("native-crash/near-miss-signal-alone")
def signal_alone(j: Journal) -> None:
    """SIGABRT of main, no core though cores are kept, no word: it can have been sent. Likely, no more."""
    life = j.life()
    life.up().exit("killed", 6).failed("signal")
    life.expect("native-crash", "likely", subclass="sigabrt-main", says=("can be sent by anybody",))


@case("native-crash/kernel-line-without-a-core")
def kernel_line(j: Journal) -> None:
    """LimitCORE=0: the kernel's record of the fault is proof enough."""
    life = j.life()
    life.up()
    j.kernel(
        f"python[{life.main}]: segfault at 10 ip 00007f2b8c0d1e2f sp 00007ffd0a1b2c30 error 4 in libcuda.so.1[7f2b+9]"
    )
    life.exit("killed", 11).failed("signal")
    j.gap("coredump", "core dumps do not go to systemd-coredump (core_pattern: core)")
    life.expect("native-crash", "confirmed", subclass="sigsegv-main")


# --- clocks and boots ----------------------------------------------------------------------------------------------


@case("kernel-oom/near-miss-same-numbers-after-a-reboot")
def same_numbers(j: Journal) -> None:
    """The next boot gives main the number that the OOM-killed one had."""
    first = j.life()
    first.up()
    j.oom(first.cgroup, first.main, "python", limit=first.cgroup)
    first.counted_oom().killed(9, "oom-kill")
    j.reboot()
    second = j.life(main=first.main, scheduler=first.scheduler, detokenizer=first.detokenizer)
    second.up().killed()
    first.expect("kernel-oom", "confirmed", subclass="memcg-main")
    second.expect("external-signal", "likely", subclass="sigkill-main")


@case("host-reset/near-miss-killed-just-before")
def killed_before_the_cut(j: Journal) -> None:
    """Killed, and two seconds later the power fails: the end of the run is on record."""
    life = j.life()
    life.up().killed()
    j.wait(2)
    j.reboot()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("host-reset/near-miss-failed-as-the-power-went")
def failed_before_the_cut(j: Journal) -> None:
    """The scheduler had failed, main was writing stacks as the machine went down."""
    life = j.life()
    life.up().scheduler_raised(SERVE, "KeyError: 'rid-72'").say(SIGQUIT).wait(3)
    j.reboot()
    life.expect("python-exception", decisive="KeyError")


@case("kernel-oom/wall-clock-steps")
def clock_steps(j: Journal) -> None:
    """The wall clock is set forward by a day between the kernel's record and the exit, and back again later."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    j._boot_began_usec += 86_400_000_000
    life.counted_oom().exit("killed", 9)
    j._boot_began_usec -= 90_000_000_000
    life.failed("oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main")


# --- forgeries -------------------------------------------------------------------------------------------------------


@case("external-signal/near-miss-forged-stop-by-another-service")
def forged_stop(j: Journal) -> None:
    """Any process can send PID 1's fields; only `_PID=1` is believed."""
    life = j.life()
    life.up()
    for message_id in ("stopping", "oom", "failed"):
        j.service("evil.service", "x", MESSAGE_ID=IDS[message_id], UNIT=life.unit, UNIT_RESULT="oom-kill",
                  INVOCATION_ID=life.invocation_id, _TRANSPORT="journal")  # fmt: skip
    life.killed()
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("stop-timeout", "kernel-oom"))


@case("external-signal/near-miss-forged-in-the-kernel-log")
def forged_kmsg(j: Journal) -> None:
    """Root writes the kernel's words into /dev/kmsg: the transport is the kernel's, the identifier is not."""
    life = j.life()
    life.up()
    j.write({"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "sh", "MESSAGE": f"Memory cgroup out of memory: Killed process "
             f"{life.main} (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"})  # fmt: skip
    life.killed()
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom",))


@case("external-signal/near-miss-forged-drain-before-the-kill")
def forged_drain(j: Journal) -> None:
    """The server prints SGLang's words for a drain, works on, and is killed: SIGKILL, not SIGTERM."""
    life = j.life()
    life.up().sigterm().drain(0).serve(4).killed()
    life.expect("external-signal", "likely")


@case("python-exception/oom-words-in-its-message")
def oom_words(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(SERVE, "RuntimeError: Out of memory: Killed process 77 (python)").self_kill()
    life.expect("python-exception", "confirmed", decisive="RuntimeError", ruled_out=("kernel-oom",))
