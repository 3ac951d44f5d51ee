"""What a server needs from outside itself: models from a hub, compilers, other nodes, accelerators of other makers."""

from tests.cases.stories import case
from tests.cases.story import Journal, Life

SERVE = "managers/scheduler.py:2711 in event_loop_overlap; model_executor/model_runner.py:2033 in forward"
INIT = "managers/scheduler.py:3207 in run_scheduler_process; model_executor/model_runner.py:511 in initialize"
CAPTURE = f"{INIT}; model_executor/runner/cuda_graph_runner.py:602 in __init__"
LOAD = f"{INIT}; model_executor/model_runner.py:905 in load_model"
SNAPSHOT = "model_loader/weight_utils.py:402 in download_weights_from_hf"


def refused(life: Life, where: str, error: str) -> None:
    life.wait(0.3).scheduler_raised(where, error).self_kill(serving=False)


# --- models that have to be fetched ---------------------------------------------------------------------------


@case("configuration-error/gated-model")
def gated(j: Journal) -> None:
    life = j.life()
    life.starting().wait(4).raised(
        "configs/model_config.py:88 in from_server_args",
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
        "https://huggingface.co/elm/elm-8b-draft.\n401 Client Error. (Request ID: Root=1-6a)",
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect(
        "configuration-error", "confirmed", subclass="model-not-fetched", decisive="gated repo", says=("gated repo",)
    )


@case("configuration-error/offline-without-a-copy")
def offline(j: Journal) -> None:
    life = j.life()
    life.starting().wait(3.1).say("server_args=ServerArgs(model_path='elm/elm-8b', port=30000)").wait(1)
    refused(
        life, SNAPSHOT,
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the "
        "specified revision on the local disk and outgoing traffic has been disabled.",
    )  # fmt: skip
    life.expect("configuration-error", "confirmed", subclass="model-not-fetched", phase="startup")


@case("configuration-error/refused-by-the-argument-check")
def argument_check(j: Journal) -> None:
    """Whatever type it has: it was raised where SGLang checks what it was told."""
    life = j.life()
    life.starting().wait(4).raised(
        "arg_groups/overrides.py:88 in resolve", "RuntimeError: elm attention cannot be combined with two draft layers"
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect("configuration-error", "likely", ruled_out=("environment-error",))


@case("configuration-error/near-miss-the-same-words-from-a-library")
def library(j: Journal) -> None:
    life = j.life()
    life.starting().load().wait(0.3).scheduler_raised(
        f"{INIT}; layers/attention/elm_backend.py:88 in plan",
        "RuntimeError: elm attention cannot be combined with two draft layers",
    ).self_kill(serving=False)
    life.expect("python-exception", phase="startup", ruled_out=("configuration-error",))


@case("environment-error/no-nvidia-smi")
def no_smi(j: Journal) -> None:
    life = j.life()
    life.starting().wait(4).raised(
        "server_args.py:1202 in __post_init__; utils/common.py:836 in get_nvgpu_memory_capacity",
        "RuntimeError: nvidia-smi not found. Ensure NVIDIA drivers are installed and accessible.",
    )
    life.exit("exited", 1).failed("exit-code")
    life.expect("environment-error", "confirmed", says=("nvidia-smi",))


# --- compilers ------------------------------------------------------------------------------------------------


@case("environment-error/kernel-build")
def kernel_build(j: Journal) -> None:
    """The compiler's own word decides, which stands far down in what the build printed."""
    life = j.life()
    life.starting().load().pools()
    noise = "\n".join(
        f"[{step}/40] /usr/local/cuda/bin/nvcc -c part_{step}.cu -o part_{step}.o" for step in range(1, 31)
    )
    refused(
        life, CAPTURE,
        f"RuntimeError: Ninja build failed. Ninja output:\n{noise}\nFAILED: part_30.o\n/usr/local/cuda/include/vec.cuh:21:10: "
        "fatal error: cuda_fp8.h: No such file or directory\nninja: build stopped: subcommand failed.",
    )  # fmt: skip
    life.expect(
        "environment-error", "confirmed", subclass="kernel-build", says=("cuda_fp8.h: No such file",),
        ruled_out=("cuda-error", "cuda-oom"),
    )  # fmt: skip


@case("environment-error/compiler-killed")
def compiler_killed(j: Journal) -> None:
    """Twelve compilers at once: one of them was killed, and no kernel record says that it was of this unit."""
    life = j.life()
    life.starting().load().pools()
    refused(
        life, CAPTURE,
        "RuntimeError: Ninja build failed. Ninja output:\n[1/12] /usr/local/cuda/bin/nvcc -c fp4.cu -o fp4.o\n"
        "FAILED: fp4.o\nKilled\nninja: build stopped: subcommand failed.",
    )  # fmt: skip
    life.expect("environment-error", "confirmed", subclass="compiler-killed", says=("compiler was killed",))


@case("environment-error/ptxas-older-than-the-gpu")
def ptxas(j: Journal) -> None:
    life = j.life()
    life.starting().load().pools()
    refused(
        life, CAPTURE,
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    )  # fmt: skip
    life.expect("environment-error", "confirmed", subclass="kernel-build", says=("ptxas fatal", "sm_121a"))


@case("environment-error/no-compiler")
def no_compiler(j: Journal) -> None:
    life = j.life()
    life.starting().load().pools()
    refused(life, CAPTURE, "FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'")
    life.expect("environment-error", "confirmed", says=("'nvcc'",))


@case("environment-error/near-miss-model-file-missing")
def file_missing(j: Journal) -> None:
    """The same type for a file of the model: that is what the server was told."""
    life = j.life()
    life.starting().load()
    refused(life, LOAD, "FileNotFoundError: [Errno 2] No such file or directory: '/srv/models/elm-8b/config.json'")
    life.expect("configuration-error", phase="startup", ruled_out=("environment-error",))


@case("environment-error/disk-quota")
def quota(j: Journal) -> None:
    life = j.life()
    life.starting().load().pools()
    refused(life, CAPTURE, "OSError: [Errno 122] Disk quota exceeded: '/home/elm/.triton/cache/x/k.json.tmp.pid_4_5'")
    life.expect("environment-error", "confirmed", says=("Disk quota exceeded",))


# --- other nodes ----------------------------------------------------------------------------------------------


@case("nccl-error/rendezvous")
def rendezvous(j: Journal) -> None:
    life = j.life(tag=" TP1")
    life.starting().wait(3.1).say("server_args=ServerArgs(model_path='/srv/models/elm-70b', nnodes=2)").wait(600)
    refused(
        life, "distributed/parallel_state.py:1644 in init_distributed_environment",
        "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
    )  # fmt: skip
    life.expect("nccl-error", "confirmed", subclass="rendezvous", says=("did not come",))


@case("nccl-error/shared-memory")
def shared_memory(j: Journal) -> None:
    life = j.life(tag=" TP1")
    life.starting().load()
    refused(
        life, INIT,
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error, NCCL version 2.27.3\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
        "Last error:\nError while creating shared memory segment /dev/shm/nccl-Q4cX1a (size 9637888)",
    )  # fmt: skip
    life.expect("nccl-error", "confirmed", subclass="shared-memory", says=("/dev/shm",))


PEER = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384, remote process exited or there was a "
    "network error, NCCL version 2.27.3\nncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely.\nLast error:\nNET/IB: Got completion from peer 10.0.0.2<45678> with status=12"
)


@case("nccl-error/peer-lost")
def peer_lost(j: Journal) -> None:
    """The other node went: this one only says so."""
    life = j.life(tag=" TP4")
    life.up().scheduler_raised(SERVE, PEER).self_kill()
    life.expect("nccl-error", subclass="peer-lost", phase="serving", says=("10.0.0.2", "peer's log"))


@case("nccl-error/near-miss-a-rank-here-was-killed")
def rank_killed(j: Journal) -> None:
    """The peer was a rank of this very unit, and main says how it went."""
    life = j.life(tag=" TP0")
    life.up().wait(0.4).scheduler_raised(SERVE, PEER).wait(0.5).subprocess_died(-9, "scheduler_1", 4412).self_kill()
    life.expect("external-signal", "likely")


# --- accelerators of other makers -----------------------------------------------------------------------------


@case("cuda-oom/npu")
def npu_oom(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(
        SERVE, "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 72.00 MiB (NPU 3; 61.27 GiB total capacity; "
        "56.05 GiB already allocated; 56.05 GiB current active; 5.04 MiB free; 58.39 GiB reserved in total by PyTorch)"
    ).self_kill()  # fmt: skip
    life.expect("cuda-oom", "confirmed", subclass="runtime", says=("72.00 MiB", "5.04 MiB of 61.27 GiB", "NPU 3"))


@case("cuda-oom/level-zero")
def xpu_oom(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(
        SERVE, "RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"
    ).self_kill()
    life.expect("cuda-oom", "confirmed", subclass="runtime", says=("ran out while serving",))


@case("cuda-error/npu")
def npu_error(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(SERVE, "RuntimeError: ACL stream synchronize failed, error code:507015").self_kill()
    life.expect("cuda-error", "confirmed", says=("507015",), says_not=("CUDA",))


@case("cuda-error/rocm-memory-fault")
def rocm_fault(j: Journal) -> None:
    """ROCm's own line says why; what follows is the abort that it leads to."""
    life = j.life()
    life.up().wait(0.5).line(
        "Memory access fault by GPU node-5 (Agent handle: 0x55d0c1e0) on address 0x7d35a0c00000. Reason: Unknown.\n"
        "Fatal Python error: Aborted\n\nCurrent thread 0x00007f15e0fff640 (most recent call first):\n"
        '  File "/srv/sglang/srt/models/elm.py", line 303 in forward', life.scheduler
    ).wait(1).subprocess_died(-6).self_kill()  # fmt: skip
    life.expect("cuda-error", "confirmed", decisive="Memory access fault", says=("ROCm",), says_not=("CUDA",))


@case("cuda-error/cutlass")
def cutlass(j: Journal) -> None:
    life = j.life()
    life.up().scheduler_raised(
        SERVE, "RuntimeError: [FP4 gemm Runner] Failed to run cutlass FP4 gemm on sm120. Error: Error Internal"
    ).self_kill()
    life.expect("cuda-error", "confirmed", says=("cutlass FP4 gemm",))


@case("native-crash/caught-by-ucx")
def ucx(j: Journal) -> None:
    life = j.life()
    life.up().wait(0.5).line(
        f"[elm-3:{life.scheduler}:0:4410] Caught signal 7 (Bus error: nonexistent physical address)\n"
        "==== backtrace (tid:   4410) ====", life.scheduler
    ).wait(1).subprocess_died(-7).self_kill()  # fmt: skip
    life.expect("native-crash", "confirmed", subclass="sigbus-scheduler", says=("SIGBUS",))


@case("native-crash/near-miss-caught-signal-quoted")
def ucx_quoted(j: Journal) -> None:
    """Main has no such library: the line is what somebody asked about, and the server worked on."""
    life = j.life()
    life.up().line("[elm-3:3039 :0:3095] Caught signal 11 (Segmentation fault: address not mapped)").serve(4)
    life.wait(900).serve(1).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")
