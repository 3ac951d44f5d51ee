"""Second thoughts: what a sceptic would throw at the verdicts."""

from tests.cases.stories import case
from tests.cases.story import IDS, Journal, Life

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"
ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


@case("gpu-fault/hang-behind-a-lost-gpu")
def hang_behind_lost_gpu(j: Journal) -> None:
    """The GPU is gone, the scheduler hangs in the driver, and minutes later the watchdog says so."""
    life = j.life()
    life.up()
    j.kernel(f"NVRM: Xid (PCI:0000:41:00): 79, pid={life.scheduler}, name=sglang::schedul, GPU has fallen off the bus.")
    life.wait(390).sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)").wait(5)
    life.self_kill(seconds=65)
    life.expect("gpu-fault", "confirmed", subclass="xid-79")


@case("hang/work-resumes-after-the-watchdog")
def resumes(j: Journal) -> None:
    """The step ends just after the watchdog had told main: the server dies of the watchdog all the same."""
    life = j.life()
    life.up().wait(330).sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)").wait(5)
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").serve(3, every=4)
    life.wait(50)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("hang", "confirmed", subclass="scheduler-watchdog")


@case("kernel-oom/under-a-shell")
def under_a_shell(j: Journal) -> None:
    """ExecStart= is a shell: SGLang's main is its child, and its death is status 137 of the shell."""
    life = j.life()
    shell = life.main - 5
    life.starting().line("+ exec python -m sglang.launch_server", shell, _COMM="sh", _CMDLINE="/bin/sh /srv/run.sh")
    life.load().pools().graphs().open().ready().serve(2)
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().wait(0.1).line("/srv/run.sh: line 4:  4021 Killed  python -m sglang.launch_server", shell,
                                      _COMM="sh", _CMDLINE="/bin/sh /srv/run.sh")  # fmt: skip
    life.exit("exited", 137).failed("oom-kill")
    life.expect("kernel-oom", "confirmed")


@case("external-signal/near-miss-forged-under-a-pid-namespace")
def pid_namespace(j: Journal) -> None:
    """uvicorn prints the pid of another namespace: journald's is the one to go by, so main is still known."""
    life = j.life()
    life.starting().load().pools().graphs().say("INFO:     Started server process [1]")
    life.say("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)").ready().serve(2)
    life.say(f"note\n[{j.clock()} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
             '  File "x.py", line 1, in f\nKeyError: 1')  # fmt: skip
    life.wait(0.4).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("environment-error/near-miss-prompt-while-serving")
def prompt_environment(j: Journal) -> None:
    """A user's words in an exception, once the server serves, say nothing of the environment."""
    life = j.life()
    life.up().scheduler_raised(
        SERVE, "ValueError: cannot parse 'No space left on device: libcuda.so: undefined symbol'"
    )
    life.self_kill()
    life.expect("python-exception", "confirmed", ruled_out=("environment-error",))


@case("clean-stop/exception-while-stopping")
def exception_while_stopping(j: Journal) -> None:
    """A failure during the drain is told, and is not what ended the server: the stop did."""
    life = j.life()
    life.up().stopping().sigterm().wait(3).scheduler_raised(SERVE, "RuntimeError: CUDA error: driver shutting down")
    life.self_kill().stopped()
    life.expect("clean-stop", "confirmed", says=("While it was stopping", "driver shutting down"))


@case("clean-stop/cut-short-by-somebody")
def cut_short(j: Journal) -> None:
    """Somebody lost patience two seconds into a stop: nothing of SGLang's says that it killed itself."""
    life = j.life()
    life.up().stopping().sigterm().wait(2).killed().stopped()
    life.expect("clean-stop", "likely")


@case("unknown/node-peer-left-with-0")
def node_peer(j: Journal) -> None:
    """A node of rank 1 and up ends with status 0 whatever happened: the cause is on another node."""
    life = j.life()
    life.up().wait(1).say(f"Scheduler or DataParallelController {life.scheduler} terminated with 0").wait(0.2).success()
    life.expect("unknown", "", says_not=("exited with status 0 and",))


@case("python-exception/data-parallel-replica")
def replica(j: Journal) -> None:
    """One of two replicas raised; the other works on for the seconds that main takes to end."""
    life = j.life(tag=" DP0")
    life.up()
    other = life.scheduler + 8
    life.raised(SERVE, "AssertionError: the radix tree lost a node", other, header="Scheduler hit an exception")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").serve(3).wait(55)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("python-exception", "confirmed", decisive="radix tree")


@case("kernel-oom/near-miss-two-units-share-a-pid-number")
def pid_reused(j: Journal) -> None:
    """A lone `Killed process` of a pid that was a helper of ours hours ago, and is another service's now."""
    life = j.life()
    life.up().line("built", 7790).serve(2).wait(20_000).serve(2)
    j.kernel("Out of memory: Killed process 7790 (etl) total-vm:100kB, anon-rss:100kB, file-rss:0kB, shmem-rss:0kB")
    life.wait(0.5).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("kernel-oom/storm-of-others")
def storm(j: Journal) -> None:
    """A storm of kills in other services, ours among them."""
    life = j.life()
    life.up()
    for number in range(20):
        j.oom(f"/system.slice/job-{number}.service", 600 + number, "job")
    j.oom(life.cgroup, life.main, "python")
    life.counted_oom().killed(9, "oom-kill")
    for number in range(20):
        j.oom(f"/system.slice/late-{number}.service", 700 + number, "job")
    life.expect("kernel-oom", "confirmed", subclass="global-main")


@case("stop-timeout/restart-job-of-a-hanging-server")
def restart_of_hanging(j: Journal) -> None:
    """The server hung (no line for minutes); the operator restarted it, and it did not answer SIGTERM."""
    life = j.life()
    life.up().wait(500).stopping().wait(60).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")
    life.stopped("restart")
    life.expect("stop-timeout", "confirmed")


@case("external-signal/near-miss-bind-dependency")
def dependency_stops(j: Journal) -> None:
    """A unit that it is bound to went down: systemd stops it as it would on request."""
    life = j.life()
    life.up()
    j.pid1("gpu-guard.service: Main process exited, code=exited, status=1/FAILURE", "exit", UNIT="gpu-guard.service",
           INVOCATION_ID="ab" * 16, EXIT_CODE="exited", EXIT_STATUS=1)  # fmt: skip
    life.stopping().sigterm().wait(4).drain(0).wait(0.1).success().stopped()
    life.expect("clean-stop", "confirmed")


@case("native-crash/truncated-core")
def truncated(j: Journal) -> None:
    """The core of a large process was cut: its record counts all the same."""
    life = j.life()
    life.up()
    j.write(
        {
            "_TRANSPORT": "journal", "_PID": "9801", "_COMM": "systemd-coredum", "_UID": "980",
            "_SYSTEMD_UNIT": f"systemd-coredump@2-{life.scheduler}-0.service", "MESSAGE_ID": IDS["core"],
            "COREDUMP_PID": life.scheduler, "COREDUMP_COMM": "sglang::schedul", "COREDUMP_SIGNAL": 11,
            "COREDUMP_UNIT": life.unit, "COREDUMP_TRUNCATED": "1",
            "MESSAGE": f"Process {life.scheduler} (sglang::schedul) of user 990 dumped core.",
        }
    )  # fmt: skip
    life.wait(0.6).subprocess_died(-11).self_kill()
    life.expect("native-crash", "confirmed", subclass="sigsegv-scheduler")


@case("cuda-error/lines-without-unit")
def lines_without_unit(j: Journal) -> None:
    """journald met the dying process too late to know its unit: the last lines of the traceback lack the field."""
    life = j.life()
    life.up().line(
        f"[{j.clock()}] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/managers/scheduler.py", line 2201, in event_loop', life.scheduler,
    )  # fmt: skip
    _without_unit(j, life, ILLEGAL)
    life.self_kill()
    life.expect("cuda-error", "confirmed", decisive="illegal memory access")


def _without_unit(j: Journal, life: Life, text: str) -> None:
    j.usec -= 990
    j.write({"_TRANSPORT": "stdout", "_PID": life.scheduler, "_COMM": "sglang::schedul",
             "SYSLOG_IDENTIFIER": "sglang-alder", "MESSAGE": text})  # fmt: skip


@case("silent-exit/traceback-of-another-writer")
def another_writer(j: Journal) -> None:
    """The traceback was written by a process of another unit, under the same name of syslog."""
    life = j.life()
    life.up()
    j.service("other.service", "Traceback (most recent call last):", SYSLOG_IDENTIFIER="sglang-alder")
    j.service("other.service", "ValueError: no", SYSLOG_IDENTIFIER="sglang-alder")
    life.wait(0.1).exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely")


@case("userspace-oom-kill/nohang-names-nobody")
def nohang(j: Journal) -> None:
    life = j.life()
    life.up()
    j.service("nohang.service", "Implementing a corrective action:")
    j.service("nohang.service", "  Sending SIGKILL to the victim")
    life.wait(0.4).killed()
    life.expect("userspace-oom-kill", "likely", subclass="nohang")


@case("userspace-oom-kill/near-miss-nohang-minutes-before")
def nohang_before(j: Journal) -> None:
    life = j.life()
    life.up()
    j.service("nohang.service", "  Sending SIGTERM to the victim")
    life.serve(40).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("gpu-fault/removal-caused-by-another-xid")
def caused_by(j: Journal) -> None:
    """Of two records only the second was kept: Xid 45, which names the one that brought it about."""
    life = j.life()
    life.up()
    j.kernel(f"NVRM: Xid (PCI:0000:41:00): 45, pid={life.scheduler}, name=sglang::schedul, Ch 00000008 caused by "
             "previous Xid 95")  # fmt: skip
    life.wait(0.1).scheduler_raised(SERVE, ILLEGAL).self_kill()
    life.expect("gpu-fault", "confirmed", subclass="xid-95")


@case("stop-timeout/host-goes-down")
def host_goes_down(j: Journal) -> None:
    """A shutdown of the host that the server held up: its kill is the shutdown's."""
    life = j.life()
    life.up()
    j.service("systemd-logind.service", "The system will power off now!", comm="systemd-logind", _TRANSPORT="journal",
              MESSAGE_ID="98268866d1d54a499c4e98921d93bc40")  # fmt: skip
    life.stopping().sigterm().wait(5).drain(2).wait(85).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout")
    j.pid1("Shutting down.")
    j.reboot()
    life.expect("stop-timeout", "confirmed", subclass="shutdown-kill", says=("host was shut down",))


@case("python-exception/traceback-cut-off")
def traceback_cut_off(j: Journal) -> None:
    """The scheduler announced an exception, and the lines that would name it are missing: likely, no more."""
    life = j.life()
    life.up().sched("Scheduler hit an exception: Traceback (most recent call last):")
    life.line('  File "/srv/sglang/srt/managers/scheduler.py", line 2201, in event_loop', life.scheduler).self_kill()
    life.expect("python-exception", "likely", subclass="unread", says=("missing from the log",))


@case("external-signal/lines-suppressed-days-before")
def suppressed_days_before(j: Journal) -> None:
    """journald dropped lines at the start; the death three days later is not hidden by that."""
    life = j.life()
    life.starting().load()
    j.write(
        {
            "_TRANSPORT": "driver", "_PID": "402", "_COMM": "systemd-journal", "MESSAGE_ID": IDS["dropped"],
            "_SYSTEMD_UNIT": "systemd-journald.service", "OBJECT_SYSTEMD_UNIT": life.unit,
            "MESSAGE": f"Suppressed 20 messages from {life.unit}",
        }
    )  # fmt: skip
    life.pools().graphs().open().ready().serve(1).wait(250_000).serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom",))


@case("external-signal/near-miss-forged-remains")
def forged_remains(j: Journal) -> None:
    """A server that runs as root writes the record of our own ExecStopPost=: it is not believed."""
    life = j.life()
    life.up()
    pid = life.main
    j.write(
        {
            "_TRANSPORT": "journal", "_PID": pid, "_UID": "0", "_COMM": "python", "_SYSTEMD_UNIT": life.unit,
            "_SYSTEMD_INVOCATION_ID": life.invocation_id, "MESSAGE_ID": IDS["remains"],
            "INQUEST_INVOCATION_ID": life.invocation_id, "INQUEST_SERVICE_RESULT": "oom-kill",
            "INQUEST_EXIT_CODE": "killed", "INQUEST_EXIT_STATUS": "KILL", "INQUEST_MEMORY_EVENTS_OOM_KILL": "1",
            "MESSAGE": "ended: oom-kill",
        }
    )  # fmt: skip
    life.killed()
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom",))


@case("stop-timeout/restart-of-a-server-that-was-not-well")
def restart_of_sick(j: Journal) -> None:
    """Its health check had failed: nobody may say that it had served well."""
    life = j.life()
    life.up().wait(40).say("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.")
    life.wait(60).stopping().wait(60).timed_out("stop-sigterm").systemd_kills().killed(9, "timeout").stopped()
    life.expect("stop-timeout", "confirmed", says_not=("served well", "not to blame"))


@case("python-exception/systemctl-kill-a-minute-before")
def client_kill_a_minute_before(j: Journal) -> None:
    """A SIGHUP by `systemctl kill` that changed nothing: the server worked on for a minute, and failed of its own."""
    life = j.life()
    life.up().client_kill("SIGHUP").serve(30).scheduler_raised(SERVE, "KeyError: 2").self_kill()
    life.expect("python-exception", "confirmed")
