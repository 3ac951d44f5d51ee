"""Advice: with this run's numbers, and one way only."""

from collections.abc import Callable
from io import BytesIO

import pytest

from forensics import sigtrace
from forensics.events import Gap
from forensics.sources.export import read_json
from tests.cases import build
from tests.cases.replay import replay
from tests.cases.story import Journal, Life
from tests.forensics.rules.telling import told


def of_case(path: str) -> str:
    journal = Journal(name=path)
    build.CASES[path](journal)
    unit = journal.expected[0].unit
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in journal.gaps]
    return " ".join(replay(read_json(BytesIO(journal.dump().encode())), {unit}, gaps)[0].verdict.advice)


@pytest.mark.parametrize(
    ("path", "says", "says_not"),
    [
        ("kernel-oom/memcg-main", "memory_max in the spec (it was 24.0 GiB)", "MAX_JOBS"),
        ("kernel-oom/limit-of-the-slice", "limit of /sglang.slice (it was 24.0 GiB)", "in the spec"),
        ("kernel-oom/compiler-of-a-kernel", "MAX_JOBS=2", "mem_fraction_static"),
        ("kernel-oom/global-victim-not-hog", "whole host was short", "memory_max"),
        ("cuda-oom/runtime-other-process", "other process on that GPU", "mem_fraction_static"),
        ("cuda-oom/weights", "weights do not fit", "Lower mem_fraction_static"),
        ("cuda-oom/graph-capture", "Lower mem_fraction_static", "Raise"),
        ("cuda-oom/near-miss-increase-mem-fraction", "Raise mem_fraction_static", "Lower"),
        ("configuration-error/max-running-request-is-zero", "Raise mem_fraction_static", "Lower"),
        ("configuration-error/port-in-use", "who holds the port", "mem_fraction_static"),
        ("cuda-error/no-kernel-image", "builds of torch", "CUDA_LAUNCH_BLOCKING"),
        ("cuda-error/illegal-access", "CUDA_LAUNCH_BLOCKING=1", "driver"),
        ("gpu-fault/contained-ecc", "Restart the server", "Do not restart"),
        ("gpu-fault/fallen-off-the-bus", "power", "restart the server"),
        ("unexplained-kill/kernel-log-unreadable", "kernel log readable", "inquest-sigtrace"),
        ("exec-failure/dependency", "list-dependencies", "path"),
    ],
)
def test_the_step_fits_the_cause(path: str, says: str, says_not: str) -> None:
    steps = of_case(path)
    assert says in steps
    assert says_not not in steps


def test_the_setting_s_value_is_named() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up(args="mem_fraction_static=0.93").scheduler_raised(
            "a.py:1 in f", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total "
            "capacity of 79.25 GiB of which 12.00 MiB is free."
        ).self_kill()  # fmt: skip

    assert "mem_fraction_static (it was 0.93)" in " ".join(told(story).advice)


def traced(j: Journal, life: Life) -> None:
    """The tracer's word that it watches this run."""
    j.write({"_TRANSPORT": "journal", "_PID": "700", "_UID": "0", "_SYSTEMD_UNIT": sigtrace.UNIT,
             "MESSAGE_ID": sigtrace.WATCHING, "INQUEST_TARGET_UNIT": life.unit, "INQUEST_SINCE_USEC": "1",
             "INQUEST_TARGET_INVOCATION_ID": life.invocation_id, "MESSAGE": "watching"})  # fmt: skip


def killed(j: Journal, life: Life) -> None:
    life.up().killed()


def killed_while_traced(j: Journal, life: Life) -> None:
    life.up()
    traced(j, life)
    life.killed()


def killed_by_a_client(j: Journal, life: Life) -> None:
    life.up().client_kill("SIGKILL").killed()


def killed_in_a_container(j: Journal, life: Life) -> None:
    life.up().exit("killed", 9).remains("signal", "killed", "KILL", oom_kill=0).failed("signal")
    j.gap("kernel", "no kernel record of this boot in the journal: this is a container, the kernel's log belongs to it")


@pytest.mark.parametrize(
    ("story", "offered"),
    [(killed, True), (killed_while_traced, False), (killed_by_a_client, False), (killed_in_a_container, False)],
)
def test_the_signal_tracer_is_offered_where_it_would_have_helped(
    story: Callable[[Journal, Life], None], *, offered: bool
) -> None:
    verdict = told(story)
    assert verdict.cause == "external-signal"
    assert ("systemctl enable --now inquest-sigtrace" in " ".join(verdict.advice)) is offered
    assert len(verdict.advice) == 1 + offered


@pytest.mark.parametrize(
    ("action", "says"),
    [("0x1 (GPU Reset Required)", "nvidia-smi --gpu-reset"), ("0x2 (Node Reboot Required)", "reboot the machine"),
     ("0x4 (Drain and Reset)", "end whatever runs on it"), ("0x0 (None)", "reset the GPU (nvidia-smi")],
)  # fmt: skip
def test_what_the_driver_asks_for_goes_before_the_table(action: str, says: str) -> None:
    """Of the machine's GPUs only the one that failed: another one may need something else."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:0000:41:00): 95, pid={life.scheduler}, name=sglang::schedul, Uncontained: LTC TAG")
        j.kernel(f"NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to {action}")
        j.kernel("NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)")
        life.scheduler_raised("a.py:1 in f", "torch.AcceleratorError: CUDA error: unknown error").self_kill()

    verdict = told(story)
    assert (verdict.cause, verdict.subclass) == ("gpu-fault", "xid-95")
    (step,) = verdict.advice
    assert says in step
