"""GPU memory, CUDA errors, NCCL, hardware."""

from tests.cases.stories import case
from tests.cases.story import Journal

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"
INIT = "managers/scheduler.py:3011 in run_scheduler_process; model_executor/model_runner.py:402 in initialize"
HINT = (
    "\nSearch for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
    "for more information.\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 79.25 GiB of "
    "which 41.38 MiB is free. {other}Of the allocated memory 77.02 GiB is allocated by PyTorch, and 512.11 MiB is reserved "
    "by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
GRAPH_HINTS = (
    "\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n2. set "
    "--cuda-graph-max-bs to a smaller value (e.g., 16)\n3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)"
)
ILLEGAL = "CUDA error: an illegal memory access was encountered"


# --- out of memory --------------------------------------------------------------------------------------------


@case("cuda-oom/weights")
def weights(j: Journal) -> None:
    life = j.life()
    life.starting().wait(3).say("server_args=ServerArgs(model_path='/srv/models/oak-70b', tp_size=1)").wait(2)
    life.sched("Load weight begin. avail mem=78.10 GB").wait(4)
    life.scheduler_raised(INIT, OOM.format(other="")).self_kill(serving=False)
    life.expect(
        "cuda-oom", "confirmed", subclass="weights", phase="startup", decisive="Tried to allocate 96.00 MiB",
        says=("96.00 MiB", "79.25 GiB"), says_not=("process ",), ruled_out=("kernel-oom",),
    )  # fmt: skip


@case("cuda-oom/graph-capture")
def graph_capture(j: Journal) -> None:
    life = j.life()
    life.starting().load().pools().wait(1)
    life.sched("Capture target verify CUDA graph begin. backend=cuda, num_tokens_per_req=4, avail mem=0.90 GB").wait(3)
    life.scheduler_raised(
        INIT, f"Exception: Capture cuda graph failed: {OOM.format(other='').split(': ', 1)[1]}{GRAPH_HINTS}",
        before="",
    ).self_kill(serving=False)  # fmt: skip
    life.expect("cuda-oom", "confirmed", subclass="graph-capture", phase="startup")


@case("cuda-oom/runtime-other-process")
def runtime_other(j: Journal) -> None:
    """Another process holds the memory that is missing: torch names it."""
    life = j.life()
    life.up().scheduler_raised(SERVE, OOM.format(other="Process 20771 has 30.12 GiB memory in use. ")).self_kill()
    life.expect("cuda-oom", "confirmed", subclass="runtime", phase="serving", says=("20771", "30.12 GiB"))


@case("cuda-oom/cublas-handle")
def cublas_handle(j: Journal) -> None:
    """The words `out of memory` never appear."""
    life = j.life()
    life.starting().load().pools().wait(0.2).scheduler_raised(
        INIT, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    ).self_kill(serving=False)
    life.expect("cuda-oom", "confirmed", phase="startup")


@case("cuda-oom/behind-nccl")
def behind_nccl(j: Journal) -> None:
    """NCCL could not get its buffers: the detail line decides."""
    life = j.life(tag=" TP1")
    life.starting().load().wait(0.2).scheduler_raised(
        INIT,
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled cuda error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\nCuda failure 2 'out of memory'",
    ).self_kill(serving=False)
    life.expect("cuda-oom", "confirmed", subclass="kv-cache")


@case("cuda-oom/near-miss-kv-pool")
def kv_pool(j: Journal) -> None:
    """The token pool is exhausted: no GPU memory is short."""
    life = j.life()
    life.up().scheduler_raised(
        SERVE, "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 16 tokens.\n"
        "Available tokens: 3"
    ).self_kill()  # fmt: skip
    life.expect("python-exception", "confirmed", ruled_out=("cuda-oom",))


@case("cuda-oom/near-miss-request-slots")
def request_slots(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(
        SERVE, "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for "
        "`--max-running-requests`. self.req_to_token_pool.available_size()=1, num_reqs=3"
    ).self_kill()  # fmt: skip
    life.expect("python-exception", "confirmed", ruled_out=("cuda-oom",))


@case("cuda-oom/near-miss-increase-mem-fraction")
def increase_mem_fraction(j: Journal) -> None:
    """`Not enough memory` asks for more of the GPU, not for less: the opposite step."""
    life = j.life()
    life.starting().load().wait(0.2).scheduler_raised(
        INIT, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        "self.server_args.mem_fraction_static=0.21"
    ).self_kill(serving=False)  # fmt: skip
    life.expect("configuration-error", "confirmed", phase="startup", ruled_out=("cuda-oom",))


@case("cuda-oom/near-miss-triton-shared-memory")
def triton_shared_memory(j: Journal) -> None:
    life = j.life()
    life.starting().load().pools().wait(0.2).scheduler_raised(
        INIT, "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: "
        "101376. Reducing block sizes or `num_stages` may help."
    ).self_kill(serving=False)  # fmt: skip
    life.expect("configuration-error", "confirmed", ruled_out=("cuda-oom", "cuda-error"))


@case("cuda-oom/near-miss-request-aborted")
def request_aborted(j: Journal) -> None:
    """A retracted request is told `Out of memory`; the server serves on and is killed an hour later."""
    life = j.life()
    life.up().sched("retract_decode: aborted last request 9f1 due to OOM").serve(2)
    life.say('INFO:     127.0.0.1:51002 - "POST /generate HTTP/1.1" 500 Internal Server Error').serve(2).wait(3600)
    life.serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("cuda-oom/in-a-container")
def in_a_container(j: Journal) -> None:
    """NVML names pids of the host, so torch lists its own process as another one: it holds what torch allocated."""
    life = j.life()
    life.up().scheduler_raised(SERVE, OOM.format(other="Process 31319 has 79.01 GiB memory in use. ")).self_kill()
    life.expect("cuda-oom", "confirmed", subclass="runtime", says_not=("process 31319",))


@case("cuda-oom/in-a-container-beside-another")
def in_a_container_beside(j: Journal) -> None:
    life = j.life()
    other = "Process 880 has 9.20 GiB memory in use. Process 31319 has 78.40 GiB memory in use. "
    life.up().scheduler_raised(SERVE, OOM.format(other=other)).self_kill()
    life.expect("cuda-oom", "confirmed", says=("process 880", "9.20 GiB"), says_not=("31319",))


@case("cuda-oom/beside-a-desktop")
def beside_a_desktop(j: Journal) -> None:
    """What a desktop holds is no reason to look for it."""
    life = j.life()
    other = "Process 912 has 143.00 MiB memory in use. Including non-PyTorch memory, this process has 79.01 GiB memory in use. "
    life.up().scheduler_raised(SERVE, OOM.format(other=other)).self_kill()
    life.expect("cuda-oom", "confirmed", says_not=("process 912",))


# --- errors ---------------------------------------------------------------------------------------------------


@case("cuda-error/illegal-access")
def illegal_access(j: Journal) -> None:
    """The error, the NCCL watchdog that merely saw it, a C++ destructor, an Xid 31: one cause."""
    life = j.life()
    life.up()
    j.kernel(f"NVRM: Xid (PCI:0000:41:00): 31, pid={life.scheduler}, name=sglang::schedul, Ch 00000008, intr 00000000. "
             "MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_2 faulted @ 0x7f31_00000000.")  # fmt: skip
    life.wait(0.02).scheduler_raised(SERVE, f"torch.AcceleratorError: {ILLEGAL}{HINT}")
    life.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    life.line("[rank0]:[E415 11:20:01.51 ProcessGroupNCCL.cpp:2057] [PG ID 2 PG GUID 3 Rank 0] Process group watchdog "
              f"thread terminated with exception: {ILLEGAL}", life.scheduler)  # fmt: skip
    life.line("terminate called after throwing an instance of 'c10::DistBackendError'\n"
              f"  what():  [PG ID 2 PG GUID 3 Rank 0] Process group watchdog thread terminated with exception: {ILLEGAL}",
              life.scheduler)  # fmt: skip
    life.line("Fatal Python error: Aborted\n\nThread 0x00007f310f7fe640 (most recent call first):\n  <no Python frame>",
              life.scheduler).wait(5)  # fmt: skip
    life.say(f"kill_process_tree called: parent_pid={life.main}, include_parent=True, pid={life.main}").killed()
    life.expect(
        "cuda-error", "confirmed", subclass="an-illegal-memory-access-was-encountered", phase="serving",
        decisive="illegal memory access", says=("often not the kernel",), ruled_out=("gpu-fault", "nccl-error"),
    )  # fmt: skip


@case("cuda-error/0.4.10")
def illegal_access_0_4_10(j: Journal) -> None:
    """RuntimeError instead of AcceleratorError; one wording for SIGQUIT in all phases; nothing announced."""
    life = j.life(tag=" TP0")
    life.up().scheduler_raised(SERVE, f"RuntimeError: {ILLEGAL}{HINT}")
    life.say("Received sigquit from a child process. It usually means the child failed.").wait(0.1).killed()
    life.expect("cuda-error", "confirmed", phase="serving")


@case("cuda-error/device-assert")
def device_assert(j: Journal) -> None:
    """A token id outside the vocabulary: assertions by the hundred, an abort, and no exception of the scheduler."""
    life = j.life()
    life.up()
    for thread in range(12):
        life.line("/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1515: indexSelectSmallIndex: block: [3,0,0], thread: "
                  f"[{thread},0,0] Assertion `srcIndex < srcSelectDimSize` failed.", life.scheduler)  # fmt: skip
    life.line("terminate called after throwing an instance of 'c10::AcceleratorError'\n"
              "  what():  CUDA error: device-side assert triggered", life.scheduler)  # fmt: skip
    life.line("Fatal Python error: Aborted\n\nCurrent thread 0x00007f0a1c9c1740 (most recent call first):\n"
              '  File "/srv/sglang/srt/managers/scheduler.py", line 2201 in event_loop', life.scheduler)  # fmt: skip
    life.wait(0.8).subprocess_died(-6)
    j.kernel(f"NVRM: Xid (PCI:0000:41:00): 43, pid={life.scheduler}, name=sglang::schedul, Ch 00000010")
    life.self_kill()
    life.expect("cuda-error", "confirmed", subclass="device-side-assert-triggered", decisive="srcIndex")


@case("cuda-error/seen-by-the-nccl-watchdog-only")
def pg_watchdog(j: Journal) -> None:
    """The CUDA error is first told by NCCL's watchdog thread: it is no NCCL error."""
    life = j.life()
    life.up().line("[rank0]:[E415 11:20:01.51 ProcessGroupNCCL.cpp:2057] [PG ID 2 PG GUID 3 Rank 0] Process group watchdog "
                   f"thread terminated with exception: {ILLEGAL}", life.scheduler)  # fmt: skip
    life.line("terminate called after throwing an instance of 'c10::DistBackendError'\n"
              f"  what():  [PG ID 2 PG GUID 3 Rank 0] Process group watchdog thread terminated with exception: {ILLEGAL}",
              life.scheduler)  # fmt: skip
    life.wait(0.7).subprocess_died(-6).self_kill()
    life.expect("cuda-error", "confirmed", ruled_out=("nccl-error",))


@case("cuda-error/no-kernel-image")
def no_kernel_image(j: Journal) -> None:
    life = j.life()
    life.starting().load().pools().wait(0.4).scheduler_raised(
        INIT, "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
    ).self_kill(serving=False)
    life.expect("cuda-error", "confirmed", phase="startup", says_not=("later call",))


@case("cuda-error/in-graph-capture")
def in_graph_capture(j: Journal) -> None:
    """Wrapped in `Capture cuda graph failed`, whose hints speak of memory: they are no evidence."""
    life = j.life()
    life.starting().load().pools().wait(1)
    life.sched("Capture target verify CUDA graph begin. backend=cuda, num_tokens_per_req=4, avail mem=9.90 GB").wait(3)
    life.scheduler_raised(
        INIT, "Exception: Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing"
        f"{GRAPH_HINTS}"
    ).self_kill(serving=False)  # fmt: skip
    life.expect("cuda-error", "confirmed", phase="startup", ruled_out=("cuda-oom",))


@case("cuda-error/two-ranks-interleaved")
def two_ranks(j: Journal) -> None:
    """Two ranks write their tracebacks in turn into one stream; the first that failed counts."""
    life = j.life(tag=" TP1")
    life.up()
    other = life.scheduler + 3
    clock = j.clock()
    life.line(f"[{clock} TP1] Scheduler hit an exception: Traceback (most recent call last):", life.scheduler)
    life.line(f"[{clock} TP0] Scheduler hit an exception: Traceback (most recent call last):", other)
    for writer, path in ((life.scheduler, "model_runner.py"), (other, "pynccl.py")) * 2:
        life.line(f'  File "/srv/sglang/srt/{path}", line 41, in forward', writer)
    life.line("torch.AcceleratorError: CUDA error: misaligned address", life.scheduler)
    life.line("RuntimeError: NCCL error: unhandled cuda error", other)
    life.self_kill()
    life.expect("cuda-error", "confirmed", subclass="misaligned-address", decisive="misaligned address")


@case("cuda-error/near-miss-outlived")
def outlived(j: Journal) -> None:
    """A warning with a CUDA error that the scheduler outlived; long after, an exception of another kind."""
    life = j.life()
    life.up().raised("layers/deep_gemm_wrapper.py:88 in warmup", "RuntimeError: CUDA error: invalid argument",
                     life.scheduler, header="Failed to warm up kernel, skipping")  # fmt: skip
    life.serve(4).wait(600).serve(1).scheduler_raised(SERVE, "IndexError: tuple index out of range").self_kill()
    life.expect("python-exception", "confirmed", decisive="IndexError")


@case("cuda-error/near-miss-hint-in-a-message")
def hint_in_message(j: Journal) -> None:
    """A refusal that warns of CUDA errors to come is none."""
    life = j.life()
    life.starting().wait(2).raised(
        "configs/model_config.py:166 in __init__",
        "ValueError: Warning: User-specified context_length (262144) is greater than the derived context_length (40960). "
        "This may lead to incorrect model outputs or CUDA errors. To allow overriding this maximum, set the env var "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect("configuration-error", "confirmed", ruled_out=("cuda-error",))


@case("cuda-error/near-miss-prompt-in-an-exception")
def prompt_in_exception(j: Journal) -> None:
    """An exception quotes what a user sent, and the user had sent a CUDA error."""
    life = j.life()
    life.up().scheduler_raised(
        "managers/scheduler.py:2201 in event_loop; constrained/xgrammar_backend.py:221 in dispatch_json",
        "RuntimeError: [11:20:01] /project/cpp/json_schema_converter.cc:2110: Unsupported pattern: CUDA error: an illegal "
        "memory access was encountered\nCUDA error: an illegal memory access was encountered",
    ).self_kill()
    life.expect("python-exception", "confirmed", ruled_out=("cuda-error",))


@case("cuda-error/near-miss-key-error")
def key_error(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(SERVE, "ValueError: CUDA error: device-side assert triggered is not a valid role")
    life.self_kill()
    life.expect("python-exception", "confirmed", ruled_out=("cuda-error",))


# --- NCCL -----------------------------------------------------------------------------------------------------


@case("nccl-error/collective-timeout")
def collective_timeout(j: Journal) -> None:
    life = j.life(tag=" TP0")
    life.up().wait(600).line(
        "[rank0]:[E415 11:20:01.51 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600031 "
        "milliseconds before timing out.", life.scheduler,
    )  # fmt: skip
    life.line("terminate called after throwing an instance of 'c10::DistBackendError'\n"
              "  what():  [Rank 0] Watchdog caught collective operation timeout", life.scheduler)  # fmt: skip
    life.wait(0.7).subprocess_died(-6).self_kill()
    life.expect("nccl-error", "confirmed", subclass="collective-timeout", phase="serving")


@case("nccl-error/shared-memory-too-small")
def nccl_shm(j: Journal) -> None:
    life = j.life(tag=" TP0")
    life.starting().load().wait(0.4).scheduler_raised(
        INIT, "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled system error (run "
        "with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclSystemError: System call (e.g. socket, malloc) or "
        "external library call failed or device error.\nLast error:\nCall to bind failed: Address family not supported"
    ).self_kill(serving=False)  # fmt: skip
    life.expect("nccl-error", "confirmed", phase="startup")


@case("nccl-error/near-miss-another-rank-raised-first")
def another_rank_first(j: Journal) -> None:
    """Rank 1 raised; rank 0's NCCL error is its echo."""
    life = j.life(tag=" TP1")
    life.up().scheduler_raised(SERVE, "AssertionError: draft tokens of rank 1 do not match")
    life.wait(0.3).raised(
        SERVE, "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error",
        life.scheduler + 4, header="Scheduler hit an exception",
    )  # fmt: skip
    life.self_kill()
    life.expect("python-exception", "confirmed", decisive="rank 1 do not match")


# --- hardware -------------------------------------------------------------------------------------------------


@case("gpu-fault/fallen-off-the-bus")
def fallen(j: Journal) -> None:
    life = j.life()
    life.up()
    j.kernel(f"NVRM: Xid (PCI:0000:41:00): 79, pid={life.scheduler}, name=sglang::schedul, GPU has fallen off the bus.")
    j.kernel("NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.")
    life.wait(0.4).scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: unspecified launch failure").self_kill()
    life.expect("gpu-fault", "confirmed", subclass="xid-79", phase="serving", decisive="79", says=("0000:41:00",))


@case("gpu-fault/double-bit-ecc")
def ecc(j: Journal) -> None:
    """Xid 48 names no process; the CUDA error that follows says the same."""
    life = j.life()
    life.up()
    j.kernel("NVRM: Xid (PCI:0000:c1:00): 48, DBE (double bit error) at FBPA 4, subpartition 1")
    j.kernel("NVRM: Xid (PCI:0000:c1:00): 63, Row remapper: New row marked for remapping")
    life.wait(0.2).scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")
    life.self_kill()
    life.expect("gpu-fault", "likely", subclass="xid-48")


@case("gpu-fault/contained-ecc")
def contained(j: Journal) -> None:
    life = j.life()
    life.up()
    j.kernel(
        f"NVRM: Xid (PCI:0000:c1:00): 94, pid={life.scheduler}, name=sglang::schedul, Contained: SM (0x1). RST: No"
    )
    life.wait(0.1).scheduler_raised(SERVE, f"torch.AcceleratorError: {ILLEGAL}").self_kill()
    life.expect("gpu-fault", "confirmed", subclass="xid-94")


@case("gpu-fault/lost-without-xid")
def lost_without_xid(j: Journal) -> None:
    life = j.life()
    life.up()
    j.kernel("NVRM: The NVIDIA GPU 0000:41:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is "
             "not responding to commands.")  # fmt: skip
    life.wait(0.3).scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: unknown error").self_kill()
    life.expect("gpu-fault", "likely", subclass="fallen-off-the-bus")


@case("gpu-fault/near-miss-another-gpu-as-somebody-kills")
def another_gpu(j: Journal) -> None:
    """Another GPU falls off the bus; ours is killed by an administrator a minute later."""
    life = j.life()
    life.up()
    j.kernel("NVRM: Xid (PCI:0000:81:00): 79, pid=77120, name=train.py, GPU has fallen off the bus.")
    life.serve(10).wait(5).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")


@case("gpu-fault/near-miss-python-error-near-an-xid")
def python_error_near_xid(j: Journal) -> None:
    """A Xid of the hardware kind in another process, and an exception that has nothing to do with a GPU."""
    life = j.life()
    life.up()
    j.kernel("NVRM: Xid (PCI:0000:81:00): 119, pid=77120, name=train.py, Timeout waiting for RPC from GSP!")
    life.serve(1).scheduler_raised(SERVE, "KeyError: 'spec_info'").self_kill()
    life.expect("python-exception", "confirmed")


@case("gpu-fault/near-miss-xid-long-before")
def xid_long_before(j: Journal) -> None:
    """A Xid that is older than the death by hours is never its cause."""
    life = j.life()
    life.up()
    j.kernel(f"NVRM: Xid (PCI:0000:41:00): 94, pid={life.scheduler + 90}, name=bench, Contained: SM (0x1). RST: No")
    life.serve(2).wait(7200).serve(2).scheduler_raised(SERVE, f"torch.AcceleratorError: {ILLEGAL}").self_kill()
    life.expect("cuda-error", "confirmed", ruled_out=("gpu-fault",))


@case("gpu-fault/near-miss-xid-45-after-a-kill")
def xid_45(j: Journal) -> None:
    """Killing a CUDA process makes the driver print Xid 45: a consequence."""
    life = j.life()
    life.up().exit("killed", 9)
    j.kernel(f"NVRM: Xid (PCI:0000:41:00): 45, pid={life.scheduler}, name=sglang::schedul, Ch 00000008")
    life.failed("signal")
    life.expect("external-signal", "likely", subclass="sigkill-main", ruled_out=("gpu-fault",))


@case("gpu-fault/near-miss-row-remap-news")
def row_remap(j: Journal) -> None:
    """Xid 63 is news: a row was remapped as designed."""
    life = j.life()
    life.up()
    j.kernel("NVRM: Xid (PCI:0000:41:00): 63, Row remapper: New row marked for remapping")
    life.serve(1).scheduler_raised(SERVE, f"torch.AcceleratorError: {ILLEGAL}").self_kill()
    life.expect("cuda-error", "confirmed", ruled_out=("gpu-fault",))


@case("gpu-fault/near-miss-clean-stop")
def clean_stop_after_xid(j: Journal) -> None:
    """The GPU reports a contained error in another process; an administrator stops the server, which drains well."""
    life = j.life()
    life.up()
    j.kernel("NVRM: Xid (PCI:0000:41:00): 95, pid=77120, name=train.py, Uncontained: LTC TAG")
    life.wait(20).stopping().sigterm().wait(5).drain(0).wait(0.1).success().stopped()
    life.expect("clean-stop", "confirmed")
