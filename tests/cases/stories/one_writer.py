"""All lines have one writer: behind `tee`, `systemd-cat`, or the client of a container, which is none of SGLang's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cases.stories import case
from tests.cases.story import Journal, Life

SERVE = "managers/scheduler.py:2201 in event_loop; speculative/eagle_worker.py:612 in verify"
ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


@dataclass(slots=True)
class Relayed(Life):
    """A life whose lines all reach journald through one process."""

    relay: int = 0
    comm: str = "tee"
    command: str = "/usr/bin/tee -a /var/log/sglang.log"

    def line(self, text: str, pid: int | None = None, **fields: Any) -> Life:
        # Named in full: a dataclass with slots is made anew, and `super()` would look for the first one.
        return Life.line(self, text, self.relay, _COMM=self.comm, _CMDLINE=self.command, **fields)


def relayed(j: Journal, **how: str) -> Relayed:
    own = j.life()
    life = Relayed(j, own.unit, own.invocation_id, own.main, own.scheduler, own.detokenizer, relay=own.main + 9)
    for name, value in how.items():
        setattr(life, name, value)
    return life


@case("python-exception/behind-tee")
def behind_tee(j: Journal) -> None:
    """`sh -c "python … 2>&1 | tee -a log"`: the scheduler's traceback has tee's pid, as main's lines have."""
    life = relayed(j)
    life.up().scheduler_raised(SERVE, "RuntimeError: The size of tensor a (9) must match the size of tensor b (5)")
    life.self_kill()
    life.expect("python-exception", "likely", phase="serving", decisive="size of tensor a (9)",
                says=("The log does not tell which process wrote which line",), says_not=("main process",))  # fmt: skip


@case("cuda-error/behind-systemd-cat")
def behind_systemd_cat(j: Journal) -> None:
    """The device's assertion is said by a scheduler; by the pid of `cat` it could be anybody's."""
    life = relayed(j, comm="cat", command="cat")
    life.up().line(
        "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [0,0,0], thread: [1,0,0] "
        'Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
    )
    life.scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: device-side assert triggered").self_kill()
    life.expect("cuda-error", "likely", decisive="index out of bounds")


@case("hang/behind-a-container-client")
def behind_a_client(j: Journal) -> None:
    """`docker run` in the foreground is systemd's main process and the writer of every line."""
    life = relayed(j, comm="docker", command="docker run --rm --gpus all lmsysorg/sglang")
    life.relay = life.main
    life.up().wait(310).sched("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)").wait(5)
    life.self_kill(seconds=65)
    life.expect("hang", "likely", subclass="scheduler-watchdog")


@case("gpu-fault/behind-a-container-client")
def lost_behind_a_client(j: Journal) -> None:
    """The driver names a scheduler by a number of the host, which the client's unit does not know."""
    life = relayed(j, comm="docker", command="docker run --rm --gpus all lmsysorg/sglang")
    life.up()
    j.kernel("NVRM: Xid (PCI:0000:41:00): 79, pid=90417, name=sglang::schedul, GPU has fallen off the bus.")
    life.scheduler_raised(SERVE, "torch.AcceleratorError: CUDA error: unknown error").self_kill()
    life.expect("gpu-fault", "likely", subclass="xid-79", decisive="Xid")


@case("gpu-fault/near-miss-training-beside-a-container")
def training_beside_a_client(j: Journal) -> None:
    """Another program's GPU falls off the bus while the server fails by itself."""
    life = relayed(j, comm="docker", command="docker run --rm --gpus all lmsysorg/sglang")
    life.up()
    j.kernel("NVRM: Xid (PCI:0000:81:00): 79, pid=90511, name=train.py, GPU has fallen off the bus.")
    life.scheduler_raised(SERVE, ILLEGAL).self_kill()
    life.expect("cuda-error", "likely", decisive="illegal memory access")


@case("kernel-oom/behind-tee")
def oom_behind_tee(j: Journal) -> None:
    """The kernel names the scheduler by its pid, which wrote no line: its cgroup and its name tell whose it is."""
    life = relayed(j)
    life.up()
    j.oom(life.cgroup, life.scheduler, "sglang::schedul", limit=life.cgroup)
    life.counted_oom().wait(0.6).subprocess_died(-9).self_kill()
    life.expect("kernel-oom", "confirmed", subclass="memcg-child")


@case("external-signal/kill-9-scheduler-behind-tee")
def kill_behind_tee(j: Journal) -> None:
    """What main says of its child is main's word, whoever wrote it down."""
    life = relayed(j)
    life.up(4).subprocess_died(-9).self_kill()
    life.expect("external-signal", "likely", subclass="sigkill-child")


@case("external-signal/near-miss-forged-batch-lines")
def forged_batches(j: Journal) -> None:
    """A prompt in main's log quotes batch lines and a scheduler's exception. The scheduler writes its own lines, so
    main is no relay, and what it says in the scheduler's name is a quotation."""
    life = j.life()
    life.up(3)
    life.line(
        f"what does this mean?\n[{j.clock()} TP0] Decode batch, #running-req: 3, token usage: 0.01, #queue-req: 0\n"
        f"[{j.clock()} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        f'  File "x.py", line 1, in f\n{ILLEGAL}'
    )
    life.wait(0.4).killed()
    life.expect("external-signal", "likely", subclass="sigkill-main")
