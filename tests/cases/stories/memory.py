"""Host memory: the kernel's OOM killer, and those in userspace."""

from tests.cases.stories import case
from tests.cases.story import Journal

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"
DIED_INIT = (
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common "
    "cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
)


@case("kernel-oom/memcg-main")
def memcg_main(j: Journal) -> None:
    """The unit's own limit; Result=oom-kill."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")
    life.expect(
        "kernel-oom", "confirmed", subclass="memcg-main", phase="serving", decisive="oom-kill:constraint=",
        ruled_out=("stop-timeout", "userspace-oom-kill", "hang"), says=("main process", "limit of"),
    )  # fmt: skip


@case("kernel-oom/memcg-child-policy-continue")
def memcg_child(j: Journal) -> None:
    """The scheduler is killed, main notices within a second and kills itself: Result=signal, status=9/KILL of main."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.scheduler, "sglang::schedul", limit=life.cgroup)
    life.counted_oom().wait(0.7).subprocess_died(-9).self_kill()
    life.expect("kernel-oom", "confirmed", subclass="memcg-child", phase="serving", decisive="task=sglang::schedul")


@case("kernel-oom/child-while-loading")
def child_while_loading(j: Journal) -> None:
    """A rank is killed as the weights are staged: a RuntimeError and exit status 1 of main."""
    life = j.life()
    life.starting().load()
    j.oom(life.cgroup, life.scheduler, "sglang::schedul")
    life.wait(3).raised("entrypoints/engine.py:1201 in _wait_for_schedulers", DIED_INIT)
    life.exit("exited", 1).failed("exit-code").start_failed()
    life.expect("kernel-oom", "confirmed", subclass="global-child", phase="startup", decisive="global_oom")


@case("kernel-oom/child-while-loading-0.5.6")
def child_while_loading_old(j: Journal) -> None:
    """The wording up to 0.5.9: `Rank 0 scheduler is dead`, then EOFError."""
    life = j.life()
    life.starting().load()
    j.oom(life.cgroup, life.scheduler, "sglang::schedul")
    life.wait(0.4).say("Rank 0 scheduler is dead. Please check if there are relevant logs.").say("Exit code: -9")
    life.raised("entrypoints/engine.py:811 in _launch_subprocesses", "EOFError")
    life.exit("exited", 1).failed("exit-code")
    life.expect("kernel-oom", "confirmed", subclass="global-child", decisive="global_oom")


@case("kernel-oom/global-victim-not-hog")
def global_victim(j: Journal) -> None:
    """Another process eats the host; ours is the largest. `invoked oom-killer` names neither culprit nor victim."""
    life = j.life(slice_path="/system.slice")
    life.up()
    j.service("report-export.service", "building the yearly report")
    j.kernel("report-export invoked oom-killer: gfp_mask=0x1100dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), order=0")
    j.oom(life.cgroup, life.main, "pt_main_thread")
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="global-main", decisive="global_oom", says=("whole host",))


@case("kernel-oom/record-late-by-a-second")
def record_late(j: Journal) -> None:
    """PID 1's records of the exit and the result stand before the kernel's, which journald received 1.1 s late."""
    life = j.life()
    life.up().wait(1.2).counted_oom().killed(9, "oom-kill")
    j.wait(1.0)
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup, late=1.1)
    life.expect("kernel-oom", "confirmed", subclass="memcg-main", decisive="oom-kill:constraint=")


@case("kernel-oom/result-signal-notice-missing")
def cgroup_v1(j: Journal) -> None:
    """cgroup v1: no memory.events, so no notice of systemd's, and Result=signal. The kernel's record is all."""
    life = j.life(slice_path="/system.slice")
    life.up()
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.killed(9, "signal")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main")


@case("kernel-oom/kernel-4.19")
def kernel_4_19(j: Journal) -> None:
    """Before 5.0 no line has both pid and cgroup."""
    life = j.life(slice_path="/system.slice")
    life.up()
    j.kernel("python invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=0")
    j.kernel(f"Task in {life.cgroup} killed as a result of limit of {life.cgroup}")
    j.kernel("memory: usage 33554432kB, limit 33554432kB, failcnt 90")
    j.kernel(f"Memory cgroup out of memory: Kill process {life.main} (python) score 981 or sacrifice child")
    j.kernel(f"Killed process {life.main} (python) total-vm:80331200kB, anon-rss:33001200kB, file-rss:1024kB, "
             "shmem-rss:0kB")  # fmt: skip
    life.killed(9, "signal")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main", says=("main process", "limit of"))


@case("kernel-oom/lone-killed-line")
def lone_killed_line(j: Journal) -> None:
    """In an OOM storm the kernel drops all lines but `Killed process`: pid and comm are all there is."""
    life = j.life()
    life.up()
    j.kernel(f"Out of memory: Killed process {life.scheduler} (sglang::schedul) total-vm:77112000kB, "
             "anon-rss:20112000kB, file-rss:0kB, shmem-rss:0kB, UID:990 pgtables:50112kB oom_score_adj:0")  # fmt: skip
    life.wait(0.8).subprocess_died(-9).self_kill()
    life.expect("kernel-oom", "confirmed", subclass="global-child", decisive="Killed process")


@case("kernel-oom/limit-of-the-slice")
def limit_of_slice(j: Journal) -> None:
    """The limit that was hit is the slice's; the victim is ours."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.main, "python", limit="/sglang.slice")
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main", says=("/sglang.slice",))


@case("kernel-oom/container-prefix")
def container_prefix(j: Journal) -> None:
    """A kernel outside the container prints the cgroup's path with the container's before it, and pids of its own."""
    life = j.life()
    life.up()
    j.oom(f"/machine.slice/machine-lab.scope/payload{life.cgroup}", 880112, "python", limit="/machine.slice")
    life.killed(9, "signal")
    life.expect("kernel-oom", "likely")


@case("kernel-oom/policy-stop-child")
def policy_stop_child(j: Journal) -> None:
    """OOMPolicy=stop: systemd stops the unit for the killed child. Nobody asked, and no `Stopping` is written."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.detokenizer, "sglang::detoken", limit=life.cgroup)
    life.counted_oom().wait(0.1).sigterm().wait(0.9).drain(0).wait(0.4).exit("exited", 1).failed("oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-child")


@case("kernel-oom/policy-stop-drain-too-long")
def policy_stop_timeout(j: Journal) -> None:
    """The stop that OOMPolicy=stop began runs into its timeout: the kill is still the cause, nobody asked for a stop."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.detokenizer, "sglang::detoken", limit=life.cgroup)
    life.counted_oom().wait(0.1).sigterm().wait(5).drain(4).wait(85)
    life.timed_out("stop-sigterm").systemd_kills().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-child")


@case("kernel-oom/compiler-of-a-kernel")
def compiler(j: Journal) -> None:
    """A compiler that builds a CUDA kernel at the start is killed; the build fails, and with it the server."""
    life = j.life()
    life.starting().load()
    j.oom(life.cgroup, 7710, "cicc", limit=life.cgroup)
    life.counted_oom().wait(0.5)
    life.scheduler_raised(
        "model_executor/model_runner.py:402 in init_attention_backend",
        "RuntimeError: Ninja build failed. Ninja output:\nninja: build stopped: subcommand failed.",
    ).self_kill(serving=False)
    life.expect("kernel-oom", "confirmed", subclass="memcg-helper", phase="startup", says=("helper", "cicc"))


@case("kernel-oom/helper-policy-stop")
def helper_policy_stop(j: Journal) -> None:
    """A helper is killed, and OOMPolicy=stop ends the whole unit for it."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, 7711, "py-spy", limit=life.cgroup)
    life.counted_oom().wait(0.1).sigterm().wait(0.8).drain(0).wait(0.2).failed("oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-helper")


@case("kernel-oom/kernel-log-unreadable")
def kernel_log_unreadable(j: Journal) -> None:
    """systemd counted the kill; the kernel's record, which would name the victim, cannot be read."""
    life = j.life()
    life.up().wait(0.5).counted_oom().killed(9, "oom-kill")
    j.gap("kernel", "no kernel record of this boot in the journal")
    life.expect("kernel-oom", "confirmed", subclass="counted")


@case("kernel-oom/counter-only")
def counter_only(j: Journal) -> None:
    """memory.events counted a kill that the kernel did not print (the victim was already exiting): likely, no more."""
    life = j.life()
    life.up().wait(0.5).exit("killed", 9).remains("signal", "killed", "KILL", oom_kill=1).failed("signal")
    life.expect("kernel-oom", "likely", subclass="counted")


@case("kernel-oom/silent-detokenizer-0.5.6")
def silent_detokenizer(j: Journal) -> None:
    """Up to 0.5.9 main does not notice: it answers TCP and nothing else, until somebody stops it 10 minutes later."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.detokenizer, "sglang::detoken", limit=life.cgroup)
    life.counted_oom().wait(25).say("Health check failed. Server couldn't get a response from detokenizer for last 20 "
                                    "seconds. tic start time: 12:01:02. last_heartbeat time: 12:00:40")  # fmt: skip
    life.wait(560).stopping().sigterm().wait(0.2).say("Signal SIGTERM received while health check failed. Force "
                                                      "exiting.").wait(0.1).killed()  # fmt: skip
    life.expect("kernel-oom", "confirmed", subclass="memcg-child", phase="serving")


@case("kernel-oom/one-rank-of-two")
def one_rank_of_two(j: Journal) -> None:
    """Rank 1 is killed; rank 0 complains about NCCL before main has looked."""
    life = j.life(tag=" TP0")
    life.up()
    j.oom(life.cgroup, life.scheduler + 9, "sglang::schedul", limit=life.cgroup)
    life.counted_oom().wait(0.2).scheduler_raised(
        SERVE, "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or "
        "there was a network error, NCCL version 2.27.5"
    )  # fmt: skip
    life.wait(0.4).subprocess_died(-9, "scheduler_1", life.scheduler + 9).self_kill()
    life.expect("kernel-oom", "confirmed", subclass="memcg-child")


@case("kernel-oom/adversarial-comm")
def adversarial_comm(j: Journal) -> None:
    """The victim chose its own name."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.main, "a,pid=1,uid=0", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main")


@case("kernel-oom/main-died-first-of-two-kills")
def other_service_first(j: Journal) -> None:
    """Two services hit their limits in one second; the figures must be ours."""
    life = j.life()
    life.up()
    j.oom("/system.slice/etl.service", 991, "etl", limit="/system.slice/etl.service", limit_kb=1_048_576)
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup, limit_kb=41_943_040)
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main", says_not=("etl",))


# --- near misses ----------------------------------------------------------------------------------------------


@case("kernel-oom/near-miss-other-service-same-second")
def other_service(j: Journal) -> None:
    """Another service is OOM-killed in the second in which somebody kills ours."""
    life = j.life()
    life.up()
    j.oom("/system.slice/etl.service", 991, "etl")
    j.pid1("etl.service: A process of this unit has been killed by the OOM killer.", "oom", UNIT="etl.service",
           INVOCATION_ID="ee" * 16)  # fmt: skip
    life.wait(0.2).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom",))


@case("kernel-oom/near-miss-helper-hours-before-exception")
def helper_hours_before(j: Journal) -> None:
    """A helper is killed, the server works on for hours, and fails of something else."""
    life = j.life()
    life.starting().load()
    j.oom(life.cgroup, 7712, "cc1plus", limit=life.cgroup)
    life.counted_oom().pools().graphs().open().ready().serve(2).wait(9000).serve(2)
    life.scheduler_raised(SERVE, "IndexError: list index out of range").self_kill()
    life.expect("python-exception", "confirmed", phase="serving", decisive="IndexError", says=("OOM",))


@case("kernel-oom/near-miss-helper-hours-before-kill")
def helper_hours_before_kill(j: Journal) -> None:
    """A helper is killed, the server works on for hours, and somebody kills it."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, 7713, "py-spy", limit=life.cgroup)
    life.counted_oom().serve(2).wait(7000).serve(2).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("kernel-oom/near-miss-data-parallel-survivor")
def data_parallel_survivor(j: Journal) -> None:
    """0.5.6 with data parallelism: a replica's scheduler is killed, the others work on, main exits 1 next day."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, life.scheduler + 5, "sglang::schedul", limit=life.cgroup)
    life.counted_oom().serve(2).wait(40_000).serve(2).wait(1).exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely")


@case("kernel-oom/near-miss-child-killed-main-exits-0")
def child_killed_main_succeeds(j: Journal) -> None:
    """A helper is killed while the server works; long after, the server ends by itself with status 0."""
    life = j.life()
    life.up()
    j.oom(life.cgroup, 7714, "tokenizers", limit=life.cgroup)
    life.counted_oom().serve(3).wait(4000).serve(1).wait(1)
    life.remains("success", "exited", "0", oom_kill=1).success()
    life.expect("clean-stop", "likely")


@case("kernel-oom/near-miss-previous-run")
def previous_run(j: Journal) -> None:
    """The kill belongs to the run before: same unit, same cgroup, 0.3 s before this run began, received after."""
    first, second = j.life(), j.life()
    first.up()
    j.wait(0.4)
    first.killed(9, "signal").restart()
    j.wait(0.1)
    second.starting()
    j.oom(first.cgroup, first.main, "python", limit=first.cgroup, late=0.35)
    second.load().pools().wait(3).killed()
    first.expect("kernel-oom", "confirmed", subclass="memcg-main")
    second.expect("external-signal", "likely", subclass="sigkill-main", phase="startup")


@case("kernel-oom/near-miss-next-run")
def next_run(j: Journal) -> None:
    """The kill belongs to the run after, which began 0.1 s after this one had ended."""
    first, second = j.life(), j.life()
    first.up().wait(2).exit("exited", 1).failed("exit-code").restart()
    second.starting().wait(0.4).line("loading", second.main)
    j.oom(second.cgroup, second.main, "python", limit=second.cgroup)
    second.killed(9, "oom-kill")
    first.expect("silent-exit", "likely")
    second.expect("kernel-oom", "confirmed", subclass="memcg-main")


@case("kernel-oom/near-miss-py-spy-after-the-failure")
def py_spy_killed(j: Journal) -> None:
    """The server had failed; py-spy, which main runs for diagnostics, is OOM-killed then."""
    life = j.life()
    life.up().scheduler_raised(SERVE, "RuntimeError: The size of tensor a (6) must match the size of tensor b (5) at "
                               "non-singleton dimension 0")  # fmt: skip
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(5.1)
    j.oom(life.cgroup, 7715, "py-spy", limit=life.cgroup)
    life.counted_oom().wait(40)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("python-exception", "confirmed", decisive="size of tensor")


@case("kernel-oom/near-miss-main-killed-while-it-was-dying")
def main_killed_while_dying(j: Journal) -> None:
    """A CUDA error began it; main, which waits 60 s for core dumps that eat the host's memory, is OOM-killed."""
    life = j.life()
    life.up().scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(31)
    j.oom(life.cgroup, life.main, "python")
    life.counted_oom().killed(9, "oom-kill")
    life.expect("cuda-error", "confirmed", decisive="illegal memory access")


@case("kernel-oom/near-miss-user-unit-of-the-same-name")
def user_unit(j: Journal) -> None:
    """A user's own unit of the same name is OOM-killed as somebody kills ours."""
    life = j.life()
    life.up()
    path = f"/user.slice/user-1000.slice/user@1000.service/app.slice/{life.unit}"
    j.oom(path, 81234, "python3", limit=path)
    life.wait(0.3).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("kernel-oom/near-miss-exit-137")
def exit_137(j: Journal) -> None:
    """137 is an exit status here, no signal."""
    life = j.life()
    life.up().wait(1).exit("exited", 137).failed("exit-code")
    life.expect("silent-exit", "likely", says=("137",))


@case("kernel-oom/near-miss-unknown-wording")
def unknown_wording(j: Journal) -> None:
    """The kernel speaks of an OOM kill in words that nobody knows: then silence proves nothing."""
    life = j.life()
    life.up()
    j.kernel(f"Out of memory: reaped task {life.main} by policy sched_ext")
    life.killed()
    life.expect("unexplained-kill", "likely")


# --- userspace ------------------------------------------------------------------------------------------------


@case("userspace-oom-kill/oomd-pressure")
def oomd_pressure(j: Journal) -> None:
    life = j.life(slice_path="/llm.slice")
    life.up()
    j.service("systemd-oomd.service", f"Killed {life.cgroup} due to memory pressure for /llm.slice being 61.20% > 50.00% "
              "for > 20s with reclaim activity")  # fmt: skip
    life.pid1(f"{life.unit}: systemd-oomd killed 3 process(es) in this unit.", "oomd", N_PROCESSES=3)
    life.killed(9, "oom-kill")
    life.expect("userspace-oom-kill", "confirmed", subclass="systemd-oomd", ruled_out=("kernel-oom",))


@case("userspace-oom-kill/oomd-record-after-the-exit")
def oomd_after(j: Journal) -> None:
    """The race: main's exit is seen before oomd's record."""
    life = j.life(slice_path="/llm.slice")
    life.up().killed(9, "signal").wait(0.3)
    j.service("systemd-oomd.service", f"Killed {life.cgroup} due to memory used (132110000128) / total (134217728000) "
              "and swap used (8500000000) / total (8589934592) being more than 90.00%")  # fmt: skip
    life.expect("userspace-oom-kill", "confirmed", subclass="systemd-oomd")


@case("userspace-oom-kill/earlyoom-scheduler")
def earlyoom_scheduler(j: Journal) -> None:
    life = j.life()
    life.up()
    j.service("earlyoom.service", f'sending SIGTERM to process {life.scheduler} uid 990 "sglang::schedul": oom_score '
              '913, oom_score_adj 0, VmRSS 23100 MiB, cmdline "sglang::scheduler"')  # fmt: skip
    life.wait(0.6).subprocess_died(-15).self_kill()
    life.expect("userspace-oom-kill", "confirmed", subclass="earlyoom")


@case("userspace-oom-kill/near-miss-hours-before")
def earlyoom_hours_before(j: Journal) -> None:
    """earlyoom ended a helper of ours hours ago."""
    life = j.life()
    life.up()
    life.line("warming a cache", 7720)
    j.service("earlyoom.service", 'sending SIGTERM to process 7720 uid 990 "python": oom_score 700, oom_score_adj 0, '
              'VmRSS 2100 MiB, cmdline "python"')  # fmt: skip
    life.serve(2).wait(6000).serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("userspace-oom-kill/near-miss-another-unit")
def oomd_other(j: Journal) -> None:
    life = j.life(slice_path="/llm.slice")
    life.up()
    j.service("systemd-oomd.service", "Killed /llm.slice/batch.service due to memory pressure for /llm.slice being "
              "61.20% > 50.00% for > 20s with reclaim activity")  # fmt: skip
    life.wait(0.2).killed()
    life.expect("external-signal", "likely", ruled_out=("userspace-oom-kill",))
