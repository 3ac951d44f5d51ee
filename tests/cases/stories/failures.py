"""The server's own failures: configuration, environment, exceptions, native crashes, hangs, starts."""

from tests.cases.stories import case
from tests.cases.story import IDS, Journal, Life

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"
INIT = "managers/scheduler.py:3011 in run_scheduler_process; managers/tp_worker.py:177 in __init__"
MAIN = "launch_server.py:29 in <module>; entrypoints/engine.py:700 in _launch_subprocesses"


# --- configuration --------------------------------------------------------------------------------------------


@case("configuration-error/max-running-request-is-zero")
def max_running_zero(j: Journal) -> None:
    """After the KV cache, amid harmless warnings about CUDA versions."""
    life = j.life()
    life.starting().load()
    life.line("UserWarning: CUDA initialization: detected CUDA 13.0, built for 12.9: this may work", life.scheduler)
    life.pools().wait(0.2).scheduler_raised(INIT, "AssertionError: max_running_request is zero").self_kill(
        serving=False
    )
    life.expect(
        "configuration-error", "confirmed", subclass="max-running-request-is-zero", phase="startup",
        decisive="max_running_request is zero", ruled_out=("cuda-oom", "cuda-error", "kernel-oom"),
    )  # fmt: skip


@case("configuration-error/usage")
def usage(j: Journal) -> None:
    life = j.life()
    life.starting().wait(2).line(
        "usage: launch_server.py [-h] --model-path MODEL_PATH\n"
        "launch_server.py: error: unrecognized arguments: --speculative-num-step 3"
    )
    life.exit("exited", 2, "INVALIDARGUMENT").failed("exit-code")
    life.expect("configuration-error", "confirmed", subclass="usage", says=("--speculative-num-step",))


@case("configuration-error/draft-shapes")
def draft_shapes(j: Journal) -> None:
    """Target and draft do not fit; the wrapper's advice to lower the memory fraction is noise."""
    life = j.life()
    life.starting().load().pools().graphs().wait(1).scheduler_raised(
        INIT, "Exception: Capture cuda graph failed: mat1 and mat2 shapes cannot be multiplied (8x1024 and 768x256)\n"
        "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"
    ).self_kill(serving=False)  # fmt: skip
    life.expect("configuration-error", "confirmed", phase="startup", ruled_out=("cuda-oom", "cuda-error"))


@case("configuration-error/missing-model")
def missing_model(j: Journal) -> None:
    life = j.life()
    life.starting().wait(3).raised(
        MAIN, "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/srv/models/absent'. Use "
        "`repo_type` argument if needed."
    )  # fmt: skip
    life.exit("exited", 1).failed("exit-code")
    life.expect("configuration-error", "confirmed", phase="startup")


@case("configuration-error/unknown-algorithm-0.5.12")
def unknown_algorithm(j: Journal) -> None:
    life = j.life()
    life.starting().wait(3).raised(MAIN, "ValueError: Unknown speculative algorithm name: EAGEL")
    life.exit("exited", 1).failed("exit-code")
    life.expect("configuration-error", "confirmed")


@case("configuration-error/port-in-use")
def port_in_use(j: Journal) -> None:
    life = j.life()
    life.starting().load().pools().graphs().wait(1)
    life.say("INFO:     Started server process [1]")
    life.say(
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use"
    )
    life.wait(2).exit("exited", 3, "NOTIMPLEMENTED").failed("exit-code")
    life.expect("configuration-error", "confirmed", subclass="address-in-use")


@case("configuration-error/near-miss-same-words-while-serving")
def size_mismatch_serving(j: Journal) -> None:
    """A size mismatch at the start is the configuration's; of a server that had served, it is an exception."""
    life = j.life()
    life.up().scheduler_raised(
        SERVE,
        "RuntimeError: The size of tensor a (160) must match the size of tensor b (2) at non-singleton dimension 0",
    ).self_kill()
    life.expect("python-exception", "confirmed", phase="serving")


@case("configuration-error/near-miss-usage-words-of-a-compiler")
def compiler_error_words(j: Journal) -> None:
    """A compiler's `error:` hours before an exit status 2 of something else."""
    life = j.life()
    life.starting().line("nvcc: error: unsupported GNU version", 8801).load().pools().graphs().open().ready().serve(3)
    life.wait(4000).serve(1).wait(1).exit("exited", 2).failed("exit-code")
    life.expect("silent-exit", "likely", subclass="status-2")


# --- environment ----------------------------------------------------------------------------------------------


@case("environment-error/import")
def import_error(j: Journal) -> None:
    life = j.life()
    life.starting().wait(4).raised(
        MAIN,
        "ImportError: /opt/inquest/sglang/lib/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDevEa",
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect("environment-error", "confirmed", decisive="undefined symbol", ruled_out=("cuda-error",))


@case("environment-error/chained-import")
def chained_import(j: Journal) -> None:
    """The first cause of the chain decides, not the wrapper."""
    life = j.life()
    life.starting().load().wait(1).raised(
        INIT, "ModuleNotFoundError: No module named 'flashinfer'\n\nDuring handling of the above exception, another exception "
        "occurred:\n\nTraceback (most recent call last):\n"
        '  File "/srv/sglang/srt/layers/attention/registry.py", line 18, in create\n'
        "RuntimeError: attention backend could not be created", life.scheduler, header="Scheduler hit an exception",
    ).self_kill(serving=False)  # fmt: skip
    life.expect("environment-error", "confirmed")


@case("environment-error/driver-mismatch")
def driver_mismatch(j: Journal) -> None:
    life = j.life()
    life.starting().load().wait(1).scheduler_raised(
        INIT, "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda "
        "driver combination"
    ).self_kill(serving=False)  # fmt: skip
    life.expect("environment-error", "confirmed")


@case("environment-error/near-miss-import-warning")
def import_warning(j: Journal) -> None:
    """Every start prints such a line."""
    life = j.life()
    life.starting().say("Ignore import error when loading sglang.srt.models.glm: No module named 'helion'").load()
    life.pools().graphs().open().ready().serve(2).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


# --- exceptions -----------------------------------------------------------------------------------------------


@case("python-exception/tensor-sizes-0.5.23")
def tensor_sizes(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(
        SERVE,
        "RuntimeError: The size of tensor a (160) must match the size of tensor b (2) at non-singleton dimension 0",
    ).self_kill()
    life.expect(
        "python-exception", "confirmed", subclass="runtimeerror", phase="serving", decisive="size of tensor a (160)",
        ruled_out=("cuda-error", "cuda-oom", "nccl-error", "kernel-oom", "external-signal", "configuration-error"),
        says=("scheduler", "eagle_worker.py in verify"),
    )  # fmt: skip


@case("python-exception/0.5.6")
def exception_0_5_6(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(SERVE, "AttributeError: 'NoneType' object has no attribute 'topk_p'")
    life.self_kill(announced=False)
    life.expect("python-exception", "confirmed", phase="serving")


@case("python-exception/detokenizer")
def detokenizer(j: Journal) -> None:
    """The scheduler lives: main waits 65 s before it kills itself."""
    life = j.life()
    life.up().raised("managers/detokenizer_manager.py:301 in event_loop", "IndexError: piece id is out of range.",
                     life.detokenizer, header="DetokenizerManager hit an exception")  # fmt: skip
    life.self_kill(seconds=65.0)
    life.expect("python-exception", "confirmed", says=("detokenizer",))


@case("python-exception/warm-up")
def warm_up(j: Journal) -> None:
    """uvicorn runs, `fired up` never comes."""
    life = j.life()
    life.starting().load().pools().graphs().open().wait(1).raised(
        "entrypoints/http_server.py:1551 in _execute_server_warmup",
        "AssertionError: <html>502 Bad Gateway</html>",
        header="Initialization failed. warmup error",
    )
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("configuration-error", phase="warmup")


@case("python-exception/main-serving")
def main_serving(j: Journal) -> None:
    life = j.life()
    life.up().raised("entrypoints/http_server.py:1412 in launch_server", "OSError: [Errno 5] Input/output error")
    life.wait(0.4).exit("exited", 1).failed("exit-code")
    life.expect("python-exception", "confirmed", says=("main",))


@case("python-exception/near-miss-handled-then-killed")
def handled_then_killed(j: Journal) -> None:
    """A traceback that the scheduler printed and went on from; it idles; hours later somebody kills it."""
    life = j.life()
    life.up(serve=1).raised("managers/session.py:71 in close", "KeyError: 'session-4'", life.scheduler)
    life.wait(7000).subprocess_died(-9).self_kill()
    life.expect("external-signal", "likely", subclass="sigkill-child")


@case("python-exception/near-miss-handled-then-silent-exit")
def handled_then_exit(j: Journal) -> None:
    """A traceback of a request in main; the server answers on, idles, and exits 1 an hour later without a word."""
    life = j.life()
    life.up(serve=1).line("ERROR:    Exception in ASGI application")
    life.raised("entrypoints/openai/serving_chat.py:77 in handle", "pydantic_core.ValidationError: 1 validation error")
    life.wait(30).say('INFO:     127.0.0.1:51002 - "GET /v1/models HTTP/1.1" 200 OK').wait(3600)
    life.exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely", subclass="status-1")


@case("python-exception/near-miss-printed-then-silent-exit")
def printed_then_exit(j: Journal) -> None:
    """The same without a header, and with work of the health check after it."""
    life = j.life()
    life.up(serve=1).raised(
        "managers/template_manager.py:77 in guess", "jinja2.exceptions.TemplateSyntaxError: unexpected '}'"
    )
    life.wait(300).say('INFO:     127.0.0.1:51002 - "GET /health HTTP/1.1" 200 OK').wait(3600)
    life.exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely", subclass="status-1")


@case("python-exception/near-miss-thread")
def thread(j: Journal) -> None:
    """An exception in a side thread ends nothing."""
    life = j.life()
    life.up().line("Exception in thread Thread-7 (push_metrics):")
    life.raised("metrics/push.py:12 in run", "requests.exceptions.ConnectionError: Max retries exceeded")
    life.wait(3).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("python-exception/near-miss-logging-error")
def logging_error(j: Journal) -> None:
    """What Python's logging could not write is printed so: nothing ended of it, and the signal that it was about did."""
    life = j.life()
    life.up().line(
        "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/logging/__init__.py", line 1163, in emit\n'
        "RuntimeError: reentrant call inside <_io.BufferedWriter name='<stderr>'>\nCall stack:\n"
        '  File "/srv/sglang/launch_server.py", line 14, in <module>\n'
        "Message: 'SIGQUIT received. signum=3, frame=None. It usually means one child failed.'\nArguments: ()"
    )
    life.wait(5.2).say(
        f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}"
    ).killed()
    life.expect("external-signal", ruled_out=("python-exception",))


# --- native ---------------------------------------------------------------------------------------------------


@case("native-crash/segv-main")
def segv_main(j: Journal) -> None:
    life = j.life()
    life.up()
    j.kernel(f"python[{life.main}]: segfault at 0 ip 00007f31aa012fd1 sp 00007ffd8a8b4e10 error 4 in "
             "libcuda.so.580.65[7f31a9c00000+1a9000]")  # fmt: skip
    life.wait(2).core(life.main, "python", 11).exit("dumped", 11).failed("core-dump")
    life.expect("native-crash", "confirmed", subclass="sigsegv-main", phase="serving", decisive="dumped core")


@case("native-crash/segv-scheduler")
def segv_scheduler(j: Journal) -> None:
    """faulthandler spoke; no core is kept, no kernel line: the handler raises the signal again."""
    life = j.life()
    life.up().line(
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f0a1c9c1740 (most recent call first):\n"
        '  File "/srv/sglang/srt/speculative/eagle_worker.py", line 612 in verify\n'
        '  File "/srv/sglang/srt/managers/scheduler.py", line 2201 in event_loop\n\n'
        "Extension modules: numpy._core._multiarray_umath, torch._C (total: 41)", life.scheduler,
    )  # fmt: skip
    life.wait(0.7).subprocess_died(-11).self_kill()
    life.expect("native-crash", "confirmed", subclass="sigsegv-scheduler", says=("eagle_worker.py in verify",))


@case("native-crash/glibc-abort")
def glibc_abort(j: Journal) -> None:
    life = j.life()
    life.up().line("double free or corruption (!prev)", life.scheduler)
    life.line("Fatal Python error: Aborted\n\nCurrent thread 0x00007f0a1c9c1740 (most recent call first):\n"
              '  File "/srv/sglang/srt/mem_cache/radix.py", line 90 in evict', life.scheduler)  # fmt: skip
    life.wait(0.7).subprocess_died(-6).self_kill()
    life.expect("native-crash", "confirmed")


@case("native-crash/bus-error-while-loading")
def bus_loading(j: Journal) -> None:
    """A full /dev/shm is SIGBUS of whoever touches it."""
    life = j.life()
    life.starting().load().wait(0.5).raised(
        "entrypoints/engine.py:1201 in _wait_for_schedulers",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -7). If exit code is -9 (SIGKILL), a "
        "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect("native-crash", "likely", phase="startup", ruled_out=("kernel-oom",))


@case("native-crash/core-told-late")
def core_late(j: Journal) -> None:
    """The core of a large process takes its time: the record comes after the unit had come to rest."""
    life = j.life()
    life.up().exit("killed", 11).failed("signal").wait(40).core(life.main, "python", 11)
    life.expect("native-crash", "confirmed", subclass="sigsegv-main")


@case("native-crash/near-miss-helper-hours-before")
def helper_core(j: Journal) -> None:
    """A compiler of ours dumped core at the start; the server was killed hours later."""
    life = j.life()
    life.starting().load().core(9033, "ptxas", 11).pools().graphs().open().ready().serve(2).wait(5000).serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


# --- hangs ----------------------------------------------------------------------------------------------------


@case("hang/service-watchdog")
def service_watchdog(j: Journal) -> None:
    """WatchdogSignal= goes to all: three core dumps that look like crashes of each."""
    life = j.life()
    life.up().wait(30).pid1(f"{life.unit}: Watchdog timeout (limit 30s)!").systemd_kills(signal="SIGABRT")
    life.line("Fatal Python error: Aborted\n\nCurrent thread 0x00007f0a1c9c1740 (most recent call first):\n"
              '  File "/srv/sglang/srt/managers/scheduler.py", line 2201 in event_loop', life.scheduler)  # fmt: skip
    life.wait(1).core(life.scheduler, "sglang::schedul", 6).core(life.main, "python", 6)
    life.exit("dumped", 6).failed("watchdog")
    life.expect("hang", "confirmed", subclass="service-watchdog", phase="serving", decisive="Watchdog timeout")


@case("hang/scheduler-0.5.15")
def scheduler_hang(j: Journal) -> None:
    """Stacks, SIGQUIT, a minute of waiting in which the line comes again; py-spy missing is not the cause."""
    life = j.life()
    life.up().wait(310).sched("Scheduler debug info:").line("self.cur_batch.batch_size()=3", life.scheduler)
    life.sched(f"Pyspy failed (py-spy dump --native --pid {life.scheduler}). Error: sh: 1: py-spy: not found")
    life.sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)").wait(5)
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.").wait(15)
    life.sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)").wait(50)
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect("hang", "confirmed", subclass="scheduler-watchdog", phase="serving", says=("300 s",))


@case("hang/scheduler-0.4.10")
def scheduler_hang_0_4_10(j: Journal) -> None:
    life = j.life(tag=" TP0")
    life.up().wait(320).sched("Watchdog timeout (self.watchdog_timeout=300)").wait(5)
    life.say("Received sigquit from a child process. It usually means the child failed.").killed()
    life.expect("hang", "confirmed", subclass="scheduler-watchdog")


@case("hang/near-miss-soft")
def soft(j: Journal) -> None:
    """A soft watchdog only logs."""
    life = j.life()
    life.up().say("Tokenizer watchdog timeout (self.watchdog_timeout=60, self.soft=True)").wait(3).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("hang/near-miss-outlived")
def hang_outlived(j: Journal) -> None:
    life = j.life()
    life.up().sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)").serve(5)
    life.scheduler_raised(SERVE, "KeyError: 7").self_kill()
    life.expect("python-exception", "confirmed")


@case("hang/near-miss-exception-before-the-watchdog")
def exception_before_watchdog(j: Journal) -> None:
    """The scheduler of a data-parallel group raised, main lingered mute, and systemd's watchdog ended it."""
    life = j.life(tag=" DP1")
    life.up().scheduler_raised(SERVE, "AssertionError: token pool leak")
    life.wait(60).pid1(f"{life.unit}: Watchdog timeout (limit 60s)!").systemd_kills(signal="SIGABRT").wait(1)
    life.exit("dumped", 6).failed("watchdog")
    life.expect("python-exception", "likely", decisive="token pool leak")


# --- starts ---------------------------------------------------------------------------------------------------


def _spawn_failed(j: Journal, life: Life, message: str) -> None:
    j.write(
        {
            "_TRANSPORT": "journal", "_PID": life.main, "_COMM": "(python)", "_SYSTEMD_UNIT": life.unit,
            "_SYSTEMD_INVOCATION_ID": life.invocation_id, "UNIT": life.unit, "MESSAGE_ID": IDS["spawn"],
            "MESSAGE": f"{life.unit}: {message}",
        }
    )  # fmt: skip


@case("exec-failure/203-exec")
def exec_203(j: Journal) -> None:
    life = j.life()
    life.starting()
    _spawn_failed(j, life, "Failed at step EXEC spawning /opt/inquest/sglang/bin/python: No such file or directory")
    life.exit("exited", 203, "EXEC").failed("exit-code").start_failed()
    life.expect("exec-failure", "confirmed", subclass="203-exec", phase="before-logging", decisive="203/EXEC",
                says=("No such file",))  # fmt: skip


@case("exec-failure/217-user")
def exec_217(j: Journal) -> None:
    life = j.life()
    life.starting()
    _spawn_failed(j, life, "Failed to determine user credentials: No such process")
    life.exit("exited", 217, "USER", process="Control", command="ExecStartPre").failed("exit-code")
    life.expect("exec-failure", "confirmed", subclass="217-user")


@case("exec-failure/start-pre")
def start_pre(j: Journal) -> None:
    life = j.life()
    life.starting().exit("exited", 4, "NOPERMISSION", process="Control", command="ExecStartPre").failed("exit-code")
    life.expect("exec-failure", "confirmed", subclass="execstartpre", phase="before-logging")


@case("exec-failure/dependency")
def dependency(j: Journal) -> None:
    life = j.life()
    life.invocation_id = ""
    j.pid1(f"Dependency failed for {life.title}.", "start-failed", UNIT=life.unit, INVOCATION_ID="", JOB_TYPE="start",
           JOB_RESULT="dependency")  # fmt: skip
    life.expect("exec-failure", "confirmed", subclass="dependency")


@case("exec-failure/resources")
def resources(j: Journal) -> None:
    life = j.life()
    life.starting().pid1(f"{life.unit}: Failed to run 'start' task: Resource temporarily unavailable").failed(
        "resources"
    )
    life.expect("exec-failure", "confirmed", subclass="resources")


@case("exec-failure/near-miss-own-status-203")
def own_203(j: Journal) -> None:
    """A program may exit with 203 of its own."""
    life = j.life()
    life.up().wait(2).exit("exited", 203, "EXEC").failed("exit-code")
    life.expect("silent-exit", "likely", subclass="status-203")


@case("exec-failure/near-miss-stop-post-failed")
def stop_post_failed(j: Journal) -> None:
    """ExecStopPost= failed after a good end: the server had been started."""
    life = j.life()
    life.up().wait(2).exit("exited", 1, process="Control", command="ExecStopPost").failed("exit-code")
    life.expect("clean-stop", "likely", subclass="unasked")


@case("preflight-refused/port")
def preflight(j: Journal) -> None:
    life = j.life()
    life.starting().wait(0.3).line(
        "inquest: preflight refused: port: port 30000 is held by nginx (pid 812); stop it or choose another port",
        life.main + 20,
        _CMDLINE="/opt/inquest/venv/bin/python -I -m service preflight alder",
    )
    life.exit("exited", 69, "UNAVAILABLE", process="Control", command="ExecStartPre").failed("exit-code").start_failed()
    life.expect("preflight-refused", "confirmed", subclass="port", phase="before-logging", says=("nginx",))


@case("preflight-refused/spec")
def spec_refused(j: Journal) -> None:
    """The unit that is made from a spec with mistakes: its start prints them and fails."""
    life = j.life()
    life.starting().wait(0.1).line("inquest: spec refused: /etc/inquest/servers/alder.toml: speculative.num_steps: "
                                   "must be a whole number, is 'five'", life.main)  # fmt: skip
    life.exit("exited", 78, "CONFIG").failed("exit-code").start_failed()
    life.expect("preflight-refused", "confirmed", subclass="spec", says=("num_steps",))


@case("start-timeout/start-post")
def start_timeout(j: Journal) -> None:
    life = j.life()
    life.starting().load().wait(600).timed_out("start-post", "Terminating").wait(0.1)
    life.raised("entrypoints/engine.py:811 in main", "EOFError").exit("exited", 1).failed("timeout").start_failed(
        "timeout"
    )
    life.expect("start-timeout", "confirmed", phase="startup", decisive="timed out", ruled_out=("kernel-oom",))


@case("start-timeout/near-miss-failed-and-lingered")
def failed_and_lingered(j: Journal) -> None:
    """The port was taken, main lingered with the model loaded, and the start's timeout ended it."""
    life = j.life()
    life.starting().load().pools().graphs()
    life.say(
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use"
    )
    life.wait(90).timed_out("start-post", "Terminating").exit("killed", 15).failed("timeout")
    life.expect("configuration-error", "likely", subclass="address-in-use")


# --- forged ---------------------------------------------------------------------------------------------------

PROMPT = "Receive: obj=GenerateReqInput(rid='a1', text='{}', sampling_params={{'max_new_tokens': 8}})"


@case("external-signal/near-miss-forged-kernel-line")
def forged_kernel(j: Journal) -> None:
    """The server's output quotes the kernel, systemd, and CUDA; then somebody kills it. None of that is evidence."""
    life = j.life()
    life.up().line(f"Memory cgroup out of memory: Killed process {life.main} (python) total-vm:1kB, anon-rss:1kB, "
                   "file-rss:0kB, shmem-rss:0kB")  # fmt: skip
    life.line(f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg={life.cgroup},"
              f"task_memcg={life.cgroup},task=python,pid={life.main},uid=990")  # fmt: skip
    life.line(f"{life.unit}: Main process exited, code=killed, status=9/KILL")
    life.line(f"{life.unit}: State 'stop-sigterm' timed out. Killing.")
    life.line("NVRM: Xid (PCI:0000:41:00): 79, pid=1, name=python, GPU has fallen off the bus.")
    life.wait(0.1).killed()
    life.expect(
        "external-signal", "likely", subclass="sigkill-main", ruled_out=("kernel-oom", "stop-timeout", "gpu-fault")
    )


@case("silent-exit/near-miss-forged-native-protocol")
def forged_native(j: Journal) -> None:
    """A record sent by the server to journald's native socket, with every field that a client may choose."""
    life = j.life()
    life.up()
    for message, fields in (
        (f"{life.unit}: A process of this unit has been killed by the OOM killer.", {"MESSAGE_ID": IDS["oom"]}),
        (f"{life.unit}: Main process exited, code=killed, status=9/KILL",
         {"MESSAGE_ID": IDS["exit"], "EXIT_CODE": "killed", "EXIT_STATUS": "9", "COMMAND": "ExecStart"}),
        (f"Process {life.main} (python) of user 0 dumped core.",
         {"MESSAGE_ID": IDS["core"], "COREDUMP_PID": life.main, "COREDUMP_SIGNAL": 11, "COREDUMP_UNIT": life.unit,
          "COREDUMP_COMM": "python", "_UID": "0"}),
        (f"Stopping {life.title}...", {"MESSAGE_ID": IDS["stopping"], "JOB_TYPE": "stop"}),
    ):  # fmt: skip
        j.write(
            {
                "_TRANSPORT": "journal", "_PID": life.main, "_COMM": "python", "_SYSTEMD_UNIT": life.unit,
                "_SYSTEMD_INVOCATION_ID": life.invocation_id, "SYSLOG_IDENTIFIER": "systemd", "UNIT": life.unit,
                "INVOCATION_ID": life.invocation_id, "MESSAGE": message, **fields,
            }
        )  # fmt: skip
    life.wait(0.1).exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely", subclass="status-1")


@case("silent-exit/near-miss-forged-kmsg")
def forged_kmsg(j: Journal) -> None:
    """A root process wrote to /dev/kmsg: the kernel's transport, but not its identifier."""
    life = j.life()
    life.up()
    j.write({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1", "SYSLOG_IDENTIFIER": "joker", "MESSAGE":
             f"Out of memory: Killed process {life.main} (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB"},
            source_usec=j.usec)  # fmt: skip
    life.wait(0.1).exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely", ruled_out=("kernel-oom",))


@case("external-signal/near-miss-forged-scheduler-exception")
def forged_exception(j: Journal) -> None:
    """With --log-requests, main prints a prompt that is a scheduler's exception, prefix and traceback included."""
    life = j.life()
    life.up().say(
        PROMPT.format("hi\n") + f"\n[{j.clock()} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nRuntimeError: CUDA error: an illegal memory access was encountered\n'
        f"[{j.clock()}] Subprocess scheduler_0 (pid=77) crashed with exit code -11. Triggering SIGQUIT for cleanup..."
    )
    life.serve(2).wait(400).serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("external-signal/near-miss-forged-just-before-the-kill")
def forged_just_before(j: Journal) -> None:
    """The same within the second before a real kill -9 of main: the forgery must not become the cause."""
    life = j.life()
    life.up().say(
        PROMPT.format("hi\n") + f"\n[{j.clock()} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nRuntimeError: CUDA error: an illegal memory access was encountered'
    )
    life.wait(0.5).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("external-signal/near-miss-forged-watchdog")
def forged_watchdog(j: Journal) -> None:
    """Main cannot speak for the scheduler's watchdog, nor for asserts on the device."""
    life = j.life()
    life.up().say("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)")
    life.line("/x/Indexing.cu:1515: f: block: [3,0,0], thread: [0,0,0] Assertion `a < b` failed.")
    life.wait(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("hang",))


@case("silent-exit/near-miss-forged-preflight")
def forged_preflight(j: Journal) -> None:
    """The server prints the words of our own check, and exits 1."""
    life = j.life()
    life.up().line("inquest: preflight refused: port: port 30000 is held by nobody; nothing to do")
    life.wait(0.2).exit("exited", 1).failed("exit-code")
    life.expect("silent-exit", "likely", subclass="status-1")


@case("kernel-oom/under-a-forged-failure")
def oom_under_forgery(j: Journal) -> None:
    """A prompt speaks of an exception; the kernel's OOM killer is what really came."""
    life = j.life()
    life.up().say(
        PROMPT.format("hi\n") + f"\n[{j.clock()}] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nKeyError: 3'
    )
    life.wait(0.3)
    j.oom(life.cgroup, life.main, "python", limit=life.cgroup)
    life.counted_oom().killed(9, "oom-kill")
    life.expect("kernel-oom", "confirmed", subclass="memcg-main")


@case("external-signal/near-miss-forged-self-kill-hours-before")
def forged_self_kill(j: Journal) -> None:
    """A prompt announces SGLang's own kill; hours later somebody really kills main."""
    life = j.life()
    life.up().say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    life.serve(2).wait(9000).serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("python-exception/two-units-in-one-second")
def two_units(j: Journal) -> None:
    """Two servers die within a second, each of its own cause."""
    one, two = j.life("sglang-alder.service"), j.life("sglang-birch.service")
    one.up()
    two.up()
    j.oom(two.cgroup, two.main, "python", limit=two.cgroup)
    one.scheduler_raised(SERVE, "KeyError: 'rid-9'")
    two.counted_oom().killed(9, "oom-kill")
    one.self_kill()
    one.expect("python-exception", "confirmed", decisive="KeyError")
    two.expect("kernel-oom", "confirmed", subclass="memcg-main")


@case("python-exception/orphan-logs-under-the-next-run")
def orphan(j: Journal) -> None:
    """KillMode=process: an orphan of the dead run writes under the new invocation; its pid tells."""
    first, second = j.life(), j.life()
    first.up().wait(1).exit("exited", 1).failed("exit-code").restart()
    second.starting().load()
    orphan = {"_SYSTEMD_INVOCATION_ID": second.invocation_id}
    first.line(f"[{j.clock()}] Scheduler hit an exception: Traceback (most recent call last):\n"
               '  File "x.py", line 1, in f\nKeyError: 3', first.scheduler, **orphan)  # fmt: skip
    second.pools().graphs().open().ready().serve(3).killed()
    first.expect("silent-exit", "likely")
    second.expect("external-signal", "likely", subclass="sigkill-main")


@case("configuration-error/glued-to-a-progress-bar")
def glued(j: Journal) -> None:
    """tqdm's bar ends without a newline: the scheduler's exception stands behind it on its line."""
    life = j.life()
    life.starting().load().wait(0.2).line(
        f"Multi-thread loading shards:   0% Completed | 0/1 [00:00<?, ?it/s][{j.clock()}] Scheduler hit an exception: "
        'Traceback (most recent call last):\n  File "/srv/sglang/srt/model_loader/weight_utils.py", line 1376, in '
        "default_weight_loader\nAssertionError: Attempted to load weight (torch.Size([256])) into parameter "
        "(torch.Size([512]))", life.scheduler,
    ).self_kill(serving=False)  # fmt: skip
    life.expect("configuration-error", "confirmed", subclass="attempted-to-load-weight", phase="startup")
