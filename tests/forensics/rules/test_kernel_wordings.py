"""A1, A2, A3: the OOM killer's words from Linux 3.10 to 6.12, in distributions' kernels, and in a coming one."""

import pytest

from forensics.events import OomKill, OomVictim, Unparsed
from forensics.sources import kernel
from tests.cases.story import Journal, Life
from tests.forensics.rules.kernels import DISTRIBUTIONS, KERNELS, UNKNOWN, Kernel
from tests.forensics.rules.telling import told
from tests.forensics.sources.entries import kernel_line


def block(text: str, life: Life, *, pid: int, comm: str) -> list[str]:
    """The lines of one kill in this life; the limit that was hit is the slice's."""
    return text.format(pid=pid, comm=comm, path=life.cgroup, oom=life.slice_path, unit=life.unit).splitlines()


RELEASES = pytest.mark.parametrize("release", KERNELS, ids=lambda one: one.release)


@RELEASES
@pytest.mark.parametrize("scope", ["memcg", "global"])
@pytest.mark.parametrize("late", [0.0, 1.1], ids=["before-the-exit", "after-the-exit"])
def test_a1_every_kernels_block_names_victim_scope_and_size(release: Kernel, scope: str, late: float) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        lines = block(release.memcg if scope == "memcg" else release.host, life, pid=life.main, comm="python")
        if late:
            j.wait(late)
            life.killed()
        for line in lines:
            j.kernel(line, late=late)
        if not late:
            life.killed()

    verdict = told(story)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("kernel-oom", "confirmed", f"{scope}-main")
    sizes = [piece.event for piece in verdict.evidence if isinstance(piece.event, OomVictim)]
    assert [size.anon_rss_bytes for size in sizes] == [24_117_248 * 1024]


@RELEASES
def test_a1_a_child_is_told_from_main(release: Kernel) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        for line in block(release.memcg, life, pid=life.scheduler, comm="sglang::schedul"):
            j.kernel(line)
        life.wait(0.8).subprocess_died(-9).self_kill()

    verdict = told(story)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("kernel-oom", "confirmed", "memcg-child")


@RELEASES
def test_a1_another_services_block_leaves_no_doubt_and_no_accusation(release: Kernel) -> None:
    """All lines of the block are known: none makes the silence about ours worthless."""

    def story(j: Journal, life: Life) -> None:
        life.up()
        other = Life(j, "etl.service", "ee" * 16, main=911, slice_path="/system.slice")
        for text in (release.memcg, release.host):
            for line in block(text, other, pid=911, comm="etl"):
                j.kernel(line)
        life.wait(0.1).killed()

    verdict = told(story)
    assert (verdict.cause, verdict.strength, verdict.subclass) == ("external-signal", "likely", "sigkill-main")
    assert "kernel-oom" in {ruled.cause for ruled in verdict.ruled_out}


@RELEASES
def test_a1_no_line_of_a_known_block_counts_as_unknown(release: Kernel) -> None:
    life = Journal(name="lines").life()
    for text in (release.memcg, release.host):
        found = [kernel.parse(kernel_line(line)) for line in block(text, life, pid=4321, comm="python")]
        assert not any(isinstance(event, Unparsed) for event in found)
        assert any(isinstance(event, OomKill) for event in found)
        assert any(isinstance(event, OomVictim) for event in found)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a1_a3_a_distributions_own_line_alone_is_enough(name: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        for line in block(DISTRIBUTIONS[name], life, pid=life.scheduler, comm="sglang::schedul"):
            j.kernel(line)
        life.wait(0.7).subprocess_died(-9).self_kill()

    verdict = told(story)
    assert (verdict.cause, verdict.strength) == ("kernel-oom", "confirmed")
    assert verdict.subclass.endswith("-child")


@pytest.mark.parametrize("words", UNKNOWN)
@pytest.mark.parametrize("order", ["before", "after"])
def test_a1_a2_words_that_nobody_knows_are_a_suspicion_never_silence(words: str, order: str) -> None:
    def story(j: Journal, life: Life) -> None:
        life.up()
        if order == "after":
            life.killed()
            j.wait(0.2)
        j.kernel(words.format(pid=life.main, comm="python", path=life.cgroup), late=0.3 if order == "after" else 0.0)
        if order == "before":
            life.killed()

    verdict = told(story, f"unknown-{words[:9]}-{order}")
    assert (verdict.cause, verdict.strength) == ("unexplained-kill", "likely")
    assert "the kernel speaks of an OOM kill in words that are not known" in verdict.summary
    assert words.split("{")[0] in verdict.summary
    assert "kernel-oom" not in {ruled.cause for ruled in verdict.ruled_out}


@pytest.mark.parametrize(
    "line",
    [
        "cuda-EvtHandlr invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        " ? oom_kill_process+0x10d/0x220",
        "oom_reaper: unable to reap pid:4321 (python)",
        "oom_reaper: reaped process 4321 (Killed process), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "TCP: out of memory -- consider tuning tcp_mem",
        "systemd[1]: Set oom_score_adj of a service",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from x",
        "Out of memory: OOM victim 4321 (python) is already exiting. Skip killing the task",
    ],
)
def test_a1_lines_around_a_kill_are_no_suspicion(line: str) -> None:
    assert not isinstance(kernel.parse(kernel_line(line)), Unparsed)
