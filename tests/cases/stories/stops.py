"""Stops that were asked for, in time or not; and ends without an error."""

from tests.cases.stories import case
from tests.cases.story import IDS, Journal

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"


@case("stop-timeout/main-ignores-sigterm")
def main_ignores(j: Journal) -> None:
    life = j.life()
    life.up().stopping().wait(90).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()
    life.expect(
        "stop-timeout", "confirmed", subclass="stop-sigterm", phase="shutdown", decisive="timed out. Killing",
        ruled_out=("kernel-oom", "hang"), says=("90 s", "configuration is not to blame"),
    )  # fmt: skip


@case("stop-timeout/drain-too-long")
def drain_too_long(j: Journal) -> None:
    """A long answer was still running; SGLang's drain has no limit of its own."""
    life = j.life(throughput=280.1)
    life.up().stopping().sigterm()
    for remaining in (5, 2, 1, 1):
        life.wait(5).drain(remaining)
    life.wait(10).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()
    life.expect(
        "stop-timeout",
        "confirmed",
        subclass="stop-sigterm",
        says=("It had served well (280.10 tokens/s, accept length 2.71, accept rate 0.57)", "1 request", "30 s"),
        decisive="timed out",
    )


@case("stop-timeout/restart-with-new-steps")
def restart_new_steps(j: Journal) -> None:
    """`systemctl restart` after a change of steps 5 → 10: it is the old run that was killed, the new one serves."""
    first, second = j.life(throughput=280.4), j.life()
    first.up(args="speculative_num_draft_tokens=5").stopping().wait(0.1).sigterm().wait(60)
    first.timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped("restart")
    second.up(args="speculative_num_draft_tokens=10", serve=2)
    first.expect(
        "stop-timeout", "confirmed", phase="shutdown", says=("configuration is not to blame",), says_not=("crash",)
    )
    second.expect("")


@case("stop-timeout/child-lingers")
def child_lingers(j: Journal) -> None:
    """Main ended at once; the detokenizer did not, and ran into final-sigterm."""
    life = j.life()
    life.up().stopping().wait(2).timed_out("final-sigterm")
    life.systemd_kills(life.detokenizer, "sglang::detoken").failed("timeout").stopped()
    life.expect("stop-timeout", "confirmed", subclass="final-sigterm")


@case("stop-timeout/abort")
def abort(j: Journal) -> None:
    """TimeoutStopFailureMode=abort: SIGABRT to all, with core dumps: no native crash."""
    life = j.life()
    life.up().stopping().wait(30).timed_out("stop-sigterm", "Aborting").systemd_kills(signal="SIGABRT")
    life.wait(1.5).core(life.scheduler, "sglang::schedul", 6).core(life.main, "python", 6)
    life.exit("dumped", 6).failed("timeout").stopped()
    life.expect("stop-timeout", "confirmed", decisive="Aborting")


@case("stop-timeout/while-starting")
def while_starting(j: Journal) -> None:
    """A stop before the unit was up leaves no `Stopping`."""
    life = j.life()
    life.starting().load().wait(4).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()
    life.expect("stop-timeout", "confirmed")


@case("stop-timeout/stop-post-hangs")
def stop_post_hangs(j: Journal) -> None:
    life = j.life()
    life.up().stopping().sigterm().wait(1).drain(0).wait(10).timed_out("stop-post", "Terminating").wait(10)
    life.timed_out("final-sigterm").systemd_kills(life.main + 77, "sleep")
    life.exit("killed", 9, process="Control", command="ExecStopPost").failed("timeout").stopped()
    life.expect("stop-timeout", "confirmed")


@case("stop-timeout/runtime-limit")
def runtime_limit(j: Journal) -> None:
    """RuntimeMaxSec= ran out, and the server did not end in time."""
    life = j.life()
    life.up().pid1(f"{life.unit}: Service reached runtime time limit. Stopping.").sigterm().wait(5).drain(3).wait(85)
    life.timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")
    life.expect("stop-timeout", "confirmed")


@case("stop-timeout/near-miss-failed-by-itself")
def failed_by_itself(j: Journal) -> None:
    """Main had exited 1 by itself; a child that ignores SIGTERM lingers, and systemd's timeout ends that."""
    life = j.life()
    life.up().raised("entrypoints/http_server.py:1412 in launch_server", "OSError: [Errno 5] Input/output error")
    life.exit("exited", 1).wait(90).timed_out("stop-sigterm")
    life.systemd_kills(life.detokenizer, "sglang::detoken").failed("exit-code")
    life.expect("python-exception", "confirmed", ruled_out=("stop-timeout",))


@case("stop-timeout/near-miss-clean-up-after-a-foreign-kill")
def foreign_kill(j: Journal) -> None:
    """Main was killed from outside; `Killing process …` is systemd cleaning up behind it."""
    life = j.life()
    life.up().exit("killed", 9).systemd_kills(life.scheduler, "sglang::schedul").failed("signal")
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("stop-timeout",))


@case("stop-timeout/near-miss-stopped-as-it-was-dying")
def stopped_as_dying(j: Journal) -> None:
    """A CUDA error, and main in its diagnostics for a minute; an administrator stops it, and that times out."""
    life = j.life()
    life.up().scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: unspecified launch failure")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(20)
    life.stopping().wait(30).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()
    life.expect("cuda-error", "confirmed", decisive="unspecified launch failure", phase="serving")


@case("stop-timeout/near-miss-child-killed-before")
def child_killed_before(j: Journal) -> None:
    """The detokenizer was killed from outside; a stop that came while main waited ran into its timeout."""
    life = j.life()
    life.up().wait(0.8).subprocess_died(-9, "detokenizer")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(20)
    life.stopping().wait(30).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()
    life.expect("external-signal", "likely", subclass="sigkill-child", phase="serving")


@case("stop-timeout/near-miss-stop-after-main-was-dead")
def stop_after_death(j: Journal) -> None:
    """Main was killed; a child lingered; the stop that came then found nothing to stop."""
    life = j.life()
    life.up().exit("killed", 9).wait(12).stopping().wait(60).timed_out("stop-sigterm")
    life.systemd_kills(life.scheduler, "sglang::schedul").failed("signal").stopped()
    life.expect("external-signal", "likely", subclass="sigkill-main")


# --- clean stops ----------------------------------------------------------------------------------------------


@case("clean-stop/0.4.10")
def clean_0_4_10(j: Journal) -> None:
    """Up to 0.5.19 even a clean drain ends in SIGKILL of itself: Result=signal, status=9/KILL."""
    life = j.life()
    life.up().stopping().wait(0.1)
    life.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...").wait(4)
    life.say("Gracefully exiting... remaining number of requests 0").wait(0.1).killed(9, "signal").stopped()
    life.expect("clean-stop", "confirmed", subclass="requested", phase="shutdown")


@case("clean-stop/0.5.15")
def clean_0_5_15(j: Journal) -> None:
    life = j.life()
    life.up().stopping().wait(0.1).sigterm().wait(5).drain(0).wait(2)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}")
    life.killed(9, "signal").stopped()
    life.expect("clean-stop", "confirmed", subclass="requested")


@case("clean-stop/0.5.23")
def clean_0_5_23(j: Journal) -> None:
    """From 0.5.20 on a clean stop is exit status 0, of which systemd logs nothing."""
    life = j.life()
    life.up().stopping().sigterm().wait(5).drain(0).wait(1).say("INFO:     Shutting down")
    life.say(f"INFO:     Finished server process [{life.main}]").success().stopped()
    life.expect("clean-stop", "confirmed", subclass="requested")


@case("clean-stop/control-group")
def control_group(j: Journal) -> None:
    """KillMode=control-group: SIGTERM to all, and the stop looks like the crash of a child."""
    life = j.life()
    life.up().stopping().wait(0.05).sigterm().wait(0.7).subprocess_died(-15).self_kill().stopped()
    life.expect("clean-stop", "confirmed", subclass="requested")


@case("clean-stop/reaction-before-stopping")
def reaction_before(j: Journal) -> None:
    """stdout is quicker than PID 1: the server's reaction, a traceback included, stands before `Stopping`."""
    life = j.life()
    life.up().sigterm().raised("entrypoints/engine.py:811 in main", "EOFError").wait(0.12)
    life.stopping().exit("exited", 1).failed("exit-code").stopped()
    life.expect("clean-stop", "confirmed", subclass="requested")


@case("clean-stop/while-starting")
def stopped_while_starting(j: Journal) -> None:
    """During the load SIGTERM ends Python at once: a success for systemd, and no `Stopping` in the journal."""
    life = j.life()
    life.starting().load().wait(1).remains("success", "killed", "TERM").success().stopped()
    life.expect("clean-stop", "confirmed", subclass="requested")


@case("clean-stop/restart-while-starting")
def restart_while_starting(j: Journal) -> None:
    """`systemctl restart` seconds after the start: systemd ends the step that waits for the server, and the next life
    begins at once. No step of the start failed by itself."""
    life = j.life()
    life.starting().load()
    life.exit("killed", 15, process="Control", command="ExecStartPost").failed("signal").stopped("restart")
    j.life().starting().load()
    life.expect("clean-stop", "confirmed", phase="shutdown")


@case("exec-failure/step-killed-then-restarted-by-systemd")
def restart_by_systemd(j: Journal) -> None:
    """The step that waits for the server was killed by somebody, and systemd itself restarted the unit: not a stop."""
    life = j.life()
    life.starting().load()
    life.exit("killed", 15, process="Control", command="ExecStartPost").failed("signal").restart()
    j.life().starting().load()
    life.expect("exec-failure", "likely", says_not=("A stop was asked for",))


@case("clean-stop/host-reboots")
def host_reboots(j: Journal) -> None:
    """An orderly reboot is a stop that was asked for."""
    life = j.life()
    life.up()
    j.service("systemd-logind.service", "The system will reboot now!", comm="systemd-logind", _TRANSPORT="journal",
              MESSAGE_ID="98268866d1d54a499c4e98921d93bc40")  # fmt: skip
    life.wait(0.2).stopping().sigterm().wait(5).drain(0).wait(0.3).killed(9, "signal").stopped()
    j.pid1("Shutting down.")
    j.reboot()
    life.expect("clean-stop", "confirmed")


@case("clean-stop/keyboard-interrupt-at-the-stop")
def keyboard_interrupt(j: Journal) -> None:
    """KillSignal=SIGINT: Python's KeyboardInterrupt is no crash."""
    life = j.life()
    life.up().stopping().wait(0.1).raised("entrypoints/http_server.py:1390 in launch_server", "KeyboardInterrupt")
    life.exit("killed", 2).failed("signal").stopped()
    life.expect("clean-stop", "confirmed")


@case("clean-stop/left-over-processes")
def left_over(j: Journal) -> None:
    life = j.life()
    life.up().stopping().sigterm().wait(1).drain(0).wait(0.2)
    life.pid1(f"{life.unit}: Unit process {life.detokenizer} (sglang::detoken) remains running after unit stopped.")
    life.success().stopped()
    life.expect("clean-stop", "confirmed")


@case("clean-stop/runtime-limit")
def clean_runtime_limit(j: Journal) -> None:
    """RuntimeMaxSec= ran out: systemd sent SIGTERM, so nobody from outside did."""
    life = j.life()
    life.up().pid1(f"{life.unit}: Service reached runtime time limit. Stopping.").sigterm().wait(3).drain(0).wait(0.1)
    life.failed("timeout")
    life.expect("clean-stop", "confirmed", subclass="runtime-limit")


@case("clean-stop/child-dumps-core-at-the-stop")
def core_at_stop(j: Journal) -> None:
    """A scheduler crashes in a destructor while the stop that was asked for is under way."""
    life = j.life()
    life.up().stopping().sigterm().wait(2).drain(0).wait(0.2).core(life.scheduler, "sglang::schedul", 11)
    life.success().stopped()
    life.expect("clean-stop", "confirmed")


@case("clean-stop/exit-0-unasked")
def exit_0(j: Journal) -> None:
    life = j.life()
    life.up().wait(2).success()
    life.expect("clean-stop", "likely", subclass="unasked")


@case("clean-stop/exec-condition")
def exec_condition(j: Journal) -> None:
    """ExecCondition= said no: the unit was skipped, nothing failed."""
    life = j.life()
    life.starting().exit("exited", 1, process="Control", command="ExecCondition")
    life.pid1(f"{life.unit}: Skipped due to 'exec-condition'.", "skipped", UNIT_RESULT="exec-condition")
    life.expect("clean-stop")


@case("clean-stop/near-miss-stopped-while-waiting-to-restart")
def stop_in_auto_restart(j: Journal) -> None:
    """Killed; then, before systemd's restart, an administrator stops the unit: `Stopped` bears the dead run's id."""
    life = j.life()
    life.up().killed().wait(4).stopped("stop")
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("clean-stop/near-miss-sigterm-while-loading")
def sigterm_while_loading(j: Journal) -> None:
    """Somebody's SIGTERM during the load: systemd calls that a success and logs no exit; ExecStopPost= was told."""
    life = j.life()
    life.starting().load().wait(1)
    life.line("inquest: not ready after 12 s: the server's main process ended; its last lines are above",
              life.main + 50, _CMDLINE="/opt/inquest/venv/bin/python -I -m service wait-ready alder")  # fmt: skip
    life.exit("exited", 75, process="Control", command="ExecStartPost")
    life.remains("exit-code", "killed", "TERM").failed("exit-code").start_failed()
    life.expect("external-signal", "likely", subclass="sigterm-main", phase="startup")


@case("clean-stop/near-miss-sigterm-while-loading-unrecorded")
def sigterm_while_loading_unrecorded(j: Journal) -> None:
    """The same under a unit of Type=simple without ExecStopPost=: nothing says how main ended."""
    life = j.life()
    life.starting().started().load().wait(1).success()
    life.expect("external-signal", "likely", phase="startup")


@case("clean-stop/near-miss-shutdown-after-the-kill")
def shutdown_after_kill(j: Journal) -> None:
    """Killed from outside a second before the host was shut down."""
    life = j.life()
    life.up().exit("killed", 9).wait(0.8)
    j.service("systemd-logind.service", "The system will power off now!", comm="systemd-logind", _TRANSPORT="journal",
              MESSAGE_ID="98268866d1d54a499c4e98921d93bc40")  # fmt: skip
    life.failed("signal")
    life.expect("external-signal", "likely", subclass="sigkill-main")


# --- silence --------------------------------------------------------------------------------------------------


@case("silent-exit/status-1")
def silent_exit(j: Journal) -> None:
    life = j.life()
    life.up().wait(1).exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely", subclass="status-1", ruled_out=("kernel-oom", "python-exception"))


@case("silent-exit/child-status-3")
def child_status_3(j: Journal) -> None:
    """A child left with a status of its own and without a word."""
    life = j.life()
    life.up().wait(0.6).subprocess_died(3).self_kill()
    life.expect("silent-exit", "likely", subclass="child-status-3")


@case("silent-exit/traceback-suppressed")
def traceback_suppressed(j: Journal) -> None:
    """journald's rate limit dropped the traceback, and says so after the end."""
    life = j.life()
    life.up().wait(1).exit("exited", 1).failed("exit-code").wait(12)
    j.write(
        {
            "_TRANSPORT": "driver", "_PID": "402", "_COMM": "systemd-journal", "_SYSTEMD_UNIT": "systemd-journald.service",
            "SYSLOG_IDENTIFIER": "systemd-journald", "MESSAGE_ID": IDS["dropped"], "N_DROPPED": "412",
            "OBJECT_SYSTEMD_UNIT": life.unit, "MESSAGE": f"Suppressed 412 messages from {life.unit}",
        }
    )  # fmt: skip
    life.expect("silent-exit", "likely", says=("Suppressed 412 messages",))


@case("unknown/end-not-recorded")
def end_lost(j: Journal) -> None:
    """The record of the end is gone: the next life shows that there was one."""
    first, second = j.life(), j.life()
    first.up()
    j.wait(60)
    second.up()
    first.expect("unknown", "")
    second.expect("")


# --- hosts ----------------------------------------------------------------------------------------------------


@case("host-reset/power-loss")
def power_loss(j: Journal) -> None:
    life = j.life()
    life.up()
    j.wait(30)
    j.reboot()
    life.expect("host-reset", "likely", phase="serving")


@case("host-reset/unified-memory-wedge")
def wedge(j: Journal) -> None:
    """A unified-memory machine out of host memory wedges without an OOM kill."""
    life = j.life()
    life.up()
    j.kernel("NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
             "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359")  # fmt: skip
    j.wait(5)
    j.reboot(900)
    life.expect("host-reset", "likely", subclass="host-memory-exhausted")


@case("host-reset/near-miss-orderly-reboot")
def orderly(j: Journal) -> None:
    """The end of the unit was not logged, the shutdown was."""
    life = j.life()
    life.up()
    j.pid1("Reached target shutdown.target - System Shutdown.", "started", UNIT="shutdown.target", JOB_TYPE="start")
    j.pid1("Shutting down.")
    j.reboot()
    life.expect("clean-stop", "confirmed")


@case("host-reset/near-miss-failed-before")
def failed_before_reset(j: Journal) -> None:
    """The scheduler had raised; the machine went down while main waited for core dumps."""
    life = j.life()
    life.up().scheduler_raised(SERVE, "RuntimeError: The size of tensor a (9) must match the size of tensor b (5) at "
                               "non-singleton dimension 1")  # fmt: skip
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(8)
    j.reboot()
    life.expect("python-exception", "likely")
