"""Signals from outside: from neither systemd's stop, the kernel's OOM killer, nor SGLang itself."""

from tests.cases.stories import case
from tests.cases.story import IDS, Journal

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"


@case("external-signal/kill-9-main")
def kill_9_main(j: Journal) -> None:
    life = j.life()
    life.up().wait(0.5).killed()
    life.expect(
        "external-signal", "likely", subclass="sigkill-main", phase="serving", decisive="status=9/KILL",
        ruled_out=("kernel-oom", "userspace-oom-kill", "stop-timeout", "hang", "python-exception", "native-crash"),
    )  # fmt: skip


@case("external-signal/kill-9-main-before-the-first-line")
def kill_9_before_first_line(j: Journal) -> None:
    life = j.life()
    life.starting().wait(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main", phase="before-logging", says=("single line",))


@case("external-signal/kill-9-scheduler")
def kill_9_scheduler(j: Journal) -> None:
    life = j.life()
    life.up().wait(0.7).subprocess_died(-9).self_kill()
    life.expect(
        "external-signal", "likely", subclass="sigkill-child", decisive="crashed with exit code -9",
        ruled_out=("kernel-oom",),
    )  # fmt: skip


@case("external-signal/kill-9-scheduler-0.5.10")
def kill_9_scheduler_0_5_10(j: Journal) -> None:
    """Before 0.5.13 main does not announce its own SIGKILL."""
    life = j.life()
    life.up().wait(0.7).subprocess_died(-9).self_kill(announced=False)
    life.expect("external-signal", "likely", subclass="sigkill-child")


@case("external-signal/kill-9-detokenizer-65-seconds")
def kill_9_detokenizer(j: Journal) -> None:
    """A scheduler lives: stacks, a wait of 60 s for core dumps, and noise until main kills itself."""
    life = j.life()
    life.up().wait(0.6).subprocess_died(-9, "detokenizer")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    life.say("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.").wait(5)
    life.say(f"Pyspy failed (py-spy dump --native --pid {life.scheduler}). Error: Permission Denied")
    life.say("Waiting 60.0 seconds for CUDA coredumps before exiting.").wait(20)
    life.say("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.").wait(40)
    life.raised("managers/tokenizer_manager.py:2011 in dump", "RuntimeError: CUDA coredump pipe not found")
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("external-signal", "likely", subclass="sigkill-child", phase="serving", ruled_out=("hang",))


@case("external-signal/kill-9-scheduler-while-loading")
def kill_9_loading(j: Journal) -> None:
    life = j.life()
    life.starting().load().wait(2).raised(
        "entrypoints/engine.py:1201 in _wait_for_schedulers",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
        "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect("external-signal", "likely", subclass="sigkill-child", phase="startup", ruled_out=("kernel-oom",))


@case("external-signal/kill-9-one-rank-of-two")
def kill_9_one_rank(j: Journal) -> None:
    """Rank 1 is killed; rank 0's NCCL error comes before main has looked, and is an echo."""
    life = j.life(tag=" TP0")
    life.up().scheduler_raised(
        SERVE, "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\nncclSystemError: System call (e.g. socket, malloc) "
        "or external library call failed or device error.\nLast error:\nsocketProgress: Connection closed by remote peer",
    )  # fmt: skip
    life.wait(0.6).subprocess_died(-9, "scheduler_1", life.scheduler + 7).self_kill()
    life.expect("external-signal", "likely", subclass="sigkill-child")


@case("external-signal/sigterm-main-0.5.23")
def sigterm_main(j: Journal) -> None:
    """systemd logs nothing but `Deactivated successfully`; SGLang's own word tells."""
    life = j.life()
    life.up().sigterm().wait(5).drain(0).say("INFO:     Shutting down").success()
    life.expect("external-signal", "likely", subclass="sigterm-main", ruled_out=("stop-timeout",))


@case("external-signal/sigterm-main-0.5.15")
def sigterm_main_0_5_15(j: Journal) -> None:
    """Up to 0.5.19 the drain ends in SIGKILL of itself."""
    life = j.life()
    life.up().sigterm().wait(5).drain(0).wait(0.3)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("external-signal", "likely", subclass="sigterm-main")


@case("external-signal/sigterm-to-the-group")
def sigterm_group(j: Journal) -> None:
    life = j.life()
    life.up().sigterm().wait(0.8).subprocess_died(-15).self_kill()
    life.expect("external-signal", "likely", subclass="sigterm-main")


@case("external-signal/sigterm-scheduler")
def sigterm_scheduler(j: Journal) -> None:
    life = j.life()
    life.up().wait(0.8).subprocess_died(-15).self_kill()
    life.expect("external-signal", "likely", subclass="sigterm-child")


@case("external-signal/sigint-main")
def sigint_main(j: Journal) -> None:
    life = j.life()
    life.up().say("INFO:     Shutting down").wait(4).raised(
        "entrypoints/http_server.py:1390 in launch_server", "KeyboardInterrupt"
    )
    life.remains("success", "killed", "INT").success()
    life.expect("external-signal", "likely", subclass="sigint-main")


@case("external-signal/sigquit-main")
def sigquit_main(j: Journal) -> None:
    """SIGQUIT that no child sent: `It usually means one child failed` is wrong here."""
    life = j.life()
    life.up().say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(5)
    life.say("Waiting 60.0 seconds for CUDA coredumps before exiting.").wait(60)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("external-signal", "likely", subclass="sigquit-main")


@case("external-signal/systemctl-kill")
def systemctl_kill(j: Journal) -> None:
    """The one sender that the journal names."""
    life = j.life()
    life.up().client_kill("SIGKILL").killed()
    life.expect("external-signal", "confirmed", subclass="systemctl-kill", decisive="on client request")


@case("external-signal/systemctl-kill-sigterm-long-drain")
def systemctl_kill_sigterm(j: Journal) -> None:
    """`systemctl kill -s TERM`: the drain takes as long as the longest answer."""
    life = j.life()
    life.up().client_kill("SIGTERM").sigterm()
    for remaining in (3, 1, 1, 0):
        life.wait(200).drain(remaining)
    life.wait(0.1).killed()
    life.expect("external-signal", "confirmed", subclass="systemctl-kill")


@case("external-signal/near-miss-systemctl-kill-hours-before")
def systemctl_kill_before(j: Journal) -> None:
    """A SIGHUP by `systemctl kill` that the server outlived by hours; it fails of something else."""
    life = j.life()
    life.up().client_kill("SIGHUP").serve(3).wait(8000).serve(1)
    life.scheduler_raised(SERVE, "KeyError: 'rid-311'").self_kill()
    life.expect("python-exception", "confirmed", decisive="KeyError")


@case("external-signal/near-miss-systemctl-kill-hours-before-oom")
def systemctl_kill_before_silence(j: Journal) -> None:
    """A SIGINT by `systemctl kill` that was ignored; hours later main exits 1 without a word."""
    life = j.life()
    life.up().client_kill("SIGINT").serve(3).wait(8000).serve(1).exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely")


@case("external-signal/near-miss-user-signal")
def user_signal(j: Journal) -> None:
    """SIGUSR1 ends nobody here; the kill that follows is not systemctl's."""
    life = j.life()
    life.up().client_kill("SIGUSR1").serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("external-signal/near-miss-sglang-kills-itself")
def tokenizer_manager(j: Journal) -> None:
    """TokenizerManager failed in main: SGLang's own SIGKILL of itself, whatever it looks like."""
    life = j.life()
    life.up().raised("managers/tokenizer_manager.py:1801 in handle_loop", "KeyError: 'meta_info'",
                     header="TokenizerManager hit an exception")  # fmt: skip
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("python-exception", "confirmed", decisive="KeyError", ruled_out=("external-signal",))


@case("external-signal/near-miss-start-post-failed")
def start_post_failed(j: Journal) -> None:
    """ExecStartPost= gave up, so systemd itself sent SIGTERM: nobody from outside, and no failure of exec either."""
    life = j.life()
    life.starting().load().pools().wait(20)
    life.line("inquest: not ready after 31 s: port 30000 is held by another process, so SGLang cannot have it",
              life.main + 50, _CMDLINE="/opt/inquest/venv/bin/python -I -m service wait-ready alder")  # fmt: skip
    life.exit("exited", 75, process="Control", command="ExecStartPost").failed("exit-code").start_failed()
    life.expect("exec-failure", "confirmed", subclass="execstartpost", says=("did not become ready",))


# --- the evidence is missing -----------------------------------------------------------------------------------


@case("unexplained-kill/kernel-log-unreadable")
def no_kernel_log(j: Journal) -> None:
    life = j.life()
    life.up().wait(0.3).killed()
    j.gap("kernel", "no kernel record of this boot in the journal: this is a container")
    life.expect("unexplained-kill", "likely", subclass="main", says=("this is a container", "OOM"))


@case("unexplained-kill/child-kernel-log-unreadable")
def no_kernel_log_child(j: Journal) -> None:
    life = j.life()
    life.up().wait(0.7).subprocess_died(-9).self_kill()
    j.gap("kernel", "no kernel record of this boot in the journal: this is a container")
    life.expect("unexplained-kill", "likely", subclass="child")


@case("unexplained-kill/one-rank-of-two-gone")
def one_rank_gone(j: Journal) -> None:
    """Rank 1 was killed; rank 0 loses its peer and says so before main has looked, and nobody tells how rank 1 ended."""
    life = j.life(tag=" TP0")
    life.up().scheduler_raised(
        "managers/scheduler_components/request_receiver.py:93 in recv_requests; utils/common.py:2244 in broadcast_pyobj",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
        "[127.0.0.1]:31337",
    )
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    life.say("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.").wait(2)
    life.line(
        "[rank0]:[W301 12:02:40.997858687 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not "
        "called before program exit, which can leak resources. (function operator())",
        life.scheduler,
    )
    life.wait(3).say("No live scheduler processes found; skipping py-spy and CUDA coredump.")
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect(
        "unexplained-kill", "likely", subclass="child", phase="serving", decisive="Connection closed by peer",
        ruled_out=("kernel-oom", "python-exception"), left_open=("external-signal",),
    )  # fmt: skip


@case("unexplained-kill/counters-instead-of-the-kernel-log")
def counters_instead(j: Journal) -> None:
    """The kernel log cannot be read, but the unit's own memory.events can: no OOM kill. That leaves an outsider."""
    life = j.life()
    life.up().wait(0.3).exit("killed", 9).remains("signal", "killed", "KILL", oom_kill=0).failed("signal")
    j.gap("kernel", "no kernel record of this boot in the journal: this is a container")
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom",))


@case("unexplained-kill/lines-suppressed")
def lines_suppressed(j: Journal) -> None:
    """journald dropped the server's lines just before the kill: its own words could have explained it."""
    life = j.life()
    life.up().wait(1)
    _suppressed(j, life.unit, 977)
    life.line("tail", life.main).killed()
    life.expect("unexplained-kill", "likely", says=("Suppressed 977 messages",))


@case("unexplained-kill/lines-suppressed-told-late")
def lines_suppressed_late(j: Journal) -> None:
    """The same, but journald only says so with the next line that it accepts: after the end."""
    life = j.life()
    life.up().wait(1).killed().wait(20)
    _suppressed(j, life.unit, 52)
    life.expect("unexplained-kill", "likely", says=("Suppressed 52 messages",))


@case("unexplained-kill/kernel-messages-missed")
def kernel_missed(j: Journal) -> None:
    life = j.life()
    life.up().wait(0.5)
    j.write({"_TRANSPORT": "driver", "_PID": "402", "_COMM": "systemd-journal", "MESSAGE_ID": IDS["missed"],
             "_SYSTEMD_UNIT": "systemd-journald.service", "MESSAGE": "Missed 118 kernel messages"})  # fmt: skip
    life.killed()
    life.expect("unexplained-kill", "likely", says=("Missed 118 kernel messages",))


@case("unexplained-kill/near-miss-another-units-lines-suppressed")
def others_suppressed(j: Journal) -> None:
    """What journald dropped was another unit's."""
    life = j.life()
    life.up().wait(1)
    _suppressed(j, "chatty.service", 5000)
    life.killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


def _suppressed(j: Journal, unit: str, count: int) -> None:
    j.write(
        {
            "_TRANSPORT": "driver", "_PID": "402", "_COMM": "systemd-journal",
            "_SYSTEMD_UNIT": "systemd-journald.service", "SYSLOG_IDENTIFIER": "systemd-journald",
            "MESSAGE_ID": IDS["dropped"], "N_DROPPED": count, "OBJECT_SYSTEMD_UNIT": unit,
            "MESSAGE": f"Suppressed {count} messages from {unit}",
        }
    )  # fmt: skip
