"""The driver's records of a GPU: which is a cause, which a consequence, whose it is, and how old it may be."""

from io import BytesIO

import pytest

from forensics.events import GpuLost, GpuMemory, GpuProcess, Xid
from forensics.model import Role, Verdict
from forensics.sources.export import read_json
from forensics.sources.gpu import kernel_bus_id
from forensics.xid_catalog import CATALOG, Kind
from tests.cases.replay import replay
from tests.cases.story import Journal, Life
from tests.forensics.factories import record
from tests.forensics.rules.telling import SERVE, told, verdict_on

UNKNOWN = "torch.AcceleratorError: CUDA error: unknown error"
BUS = "0000:41:00"


def initiating(verdict: Verdict) -> list[str]:
    return [piece.event.record.message for piece in verdict.evidence if piece.role is Role.INITIATING]


def raised(life: Life, error: str = UNKNOWN) -> None:
    life.scheduler_raised(SERVE, error).self_kill()


@pytest.mark.parametrize("seconds", [600, 3600, 86_400])
def test_e4_an_xid_that_the_server_outlived_is_never_its_cause(seconds: int) -> None:
    """DCGM's metric would still show it: its value is the last Xid ever seen."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:{BUS}): 94, pid={life.scheduler}, name=sglang::schedul, Contained: SM (0x1). RST: No")
        life.wait(5).serve(2).wait(seconds).serve(2)
        raised(life)

    verdict = told(story)
    assert verdict.cause == "cuda-error"
    assert not any(isinstance(piece.event, Xid) for piece in verdict.evidence)


def test_e4_an_xid_of_the_life_before_is_never_its_cause() -> None:
    journal = Journal(name="e4")
    first = journal.life()
    first.up()
    journal.kernel(
        f"NVRM: Xid (PCI:{BUS}): 79, pid={first.scheduler}, name=sglang::schedul, GPU has fallen off the bus."
    )
    raised(first)
    first.restart()
    second = journal.life()
    second.up()
    raised(second)
    before, after = replay(read_json(BytesIO(journal.dump().encode())), {first.unit})
    assert (before.verdict.cause, before.verdict.subclass) == ("gpu-fault", "xid-79")
    assert after.verdict.cause == "cuda-error"


def test_e5_the_kernel_s_line_alone_suffices() -> None:
    """Neither NVML nor DCGM has seen anything."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:{BUS}): 95, pid={life.scheduler}, name=sglang::schedul, Uncontained: LTC TAG")
        raised(life)

    verdict = told(story)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("gpu-fault", "confirmed", "xid-95")
    assert initiating(verdict)[0].startswith("NVRM: Xid")


LOST = (
    "NVRM: Xid (PCI:{}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: GPU {}.0: GPU has fallen off the bus.",
)


@pytest.mark.parametrize("line", LOST)
@pytest.mark.parametrize("seen_before", [True, False])
def test_e6_a_gpu_that_nvml_no_longer_knows_keeps_its_bus_address(line: str, *, seen_before: bool) -> None:
    """The record names no process. That the GPU was ours is known from before its loss; else it is only likely."""
    journal = Journal(name="e6")
    life = journal.life()
    life.up()
    seen_usec = journal.usec
    journal.wait(4)
    journal.kernel(line.format(BUS))
    raised(life)
    seen = GpuMemory(
        record=record(usec=seen_usec, source="gpu"), uuid="GPU-7", index=0, name="H200",
        pci_bus_id=kernel_bus_id("00000000:41:00.0"), total_bytes=9, used_bytes=8,
        processes=(GpuProcess(pid=life.scheduler, used_bytes=7),),
    )  # fmt: skip
    gone = GpuLost(record=record("GPU 0: GPU is lost", journal.usec, source="gpu"), pci_bus_id=None)
    verdict = verdict_on(journal, life, [seen, gone] if seen_before else [gone]).verdict
    assert (verdict.cause, verdict.strength) == ("gpu-fault", "confirmed" if seen_before else "likely")
    assert BUS in verdict.summary
    assert BUS in initiating(verdict)[0]


@pytest.mark.parametrize("number", CATALOG, ids=str)
def test_e9_what_an_xid_is_stands_in_one_table(number: int) -> None:
    """The kind decides whether it can be a cause, and the same row says what to do; the subclass names the row."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:{BUS}): {number}, pid={life.scheduler}, name=sglang::schedul, Ch 00000008")
        raised(life)

    verdict, row = told(story), CATALOG[number]
    if row.kind is Kind.HARDWARE:
        assert (verdict.cause, verdict.strength, verdict.subclass) == ("gpu-fault", "confirmed", f"xid-{number}")
        assert row.mnemonic in verdict.summary
        assert row.action.lower() in verdict.advice[0].lower()
    else:
        assert verdict.cause == "cuda-error"
        assert "gpu-fault" in {other.cause for other in verdict.ruled_out}


@pytest.mark.parametrize(("severity", "cause"), [("Fatal", "gpu-fault"), ("Nonfatal", "cuda-error")])
def test_e9_nvlink_5_says_of_each_error_whether_it_was_fatal(severity: str, cause: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:{BUS}): 145, pid={life.scheduler}, name=sglang, RLW_RXPIPE {severity} XC0 i0 Link 13 "
                 "(0xf1 0x7d 0x0b 0x35 0x34 0x7e)")  # fmt: skip
        raised(life)

    assert told(story).cause == cause


def test_e9_a_number_that_the_table_lacks_is_no_cause() -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:{BUS}): 9999, pid={life.scheduler}, name=sglang::schedul, something new")
        raised(life)

    assert told(story).cause == "cuda-error"


@pytest.mark.parametrize(
    ("earlier", "cause", "subclass"),
    [(79, "gpu-fault", "xid-79"), (48, "gpu-fault", "xid-48"), (31, "cuda-error", ""), (13, "cuda-error", "")],
)
def test_e11_a_removal_of_channels_names_what_brought_it_about(earlier: int, cause: str, subclass: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        j.kernel(f"NVRM: Xid (PCI:{BUS}): 45, pid={life.scheduler}, name=sglang::schedul, Ch 00000008 "
                 f"caused by previous Xid {earlier}")  # fmt: skip
        raised(life)

    verdict = told(story)
    assert verdict.cause == cause
    if subclass:
        assert verdict.subclass == subclass
        assert CATALOG[earlier].mnemonic in verdict.summary


def test_e11_by_itself_it_is_teardown() -> None:
    """Somebody's SIGKILL of a CUDA process makes the driver print it, a line for each channel."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        for channel in range(8, 12):
            j.kernel(f"NVRM: Xid (PCI:{BUS}): 45, pid={life.scheduler}, name=sglang::schedul, Ch {channel:08x}")
        life.wait(0.4).subprocess_died(-9).self_kill()

    verdict = told(story)
    assert (verdict.cause, verdict.subclass) == ("external-signal", "sigkill-child")
