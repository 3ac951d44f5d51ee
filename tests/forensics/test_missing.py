"""Evidence that is known to be lost: no verdict is confirmed that the lost lines would have overturned."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.entry import Entry
from forensics.events import Gap
from forensics.sources.export import read_json
from tests.cases.replay import replay
from tests.forensics.test_cases import FOLDERS, name_of

AS_FAR_AS_IT_GOES = {
    ("gpu-fault", "cuda-error"),
    ("gpu-fault", "hang"),
    ("preflight-refused", "exec-failure"),
    ("cuda-error", "kernel-oom"),  # the kernel did kill main; that it was dying already is what was lost
}
"""(the cause, what remains of it): each true, and each says what it does not know."""

Lost = Callable[[Entry, random.Random], bool]
LOSSES: dict[str, tuple[str, Lost]] = {
    "no kernel log": ("kernel", lambda entry, chance: entry.from_kernel),
    "no line of the server": ("server", lambda entry, chance: entry.get("_SYSTEMD_UNIT").startswith("sglang-")),
    "half of the server's lines": (
        "server",
        lambda entry, chance: entry.get("_SYSTEMD_UNIT").startswith("sglang-") and chance.random() < 0.5,
    ),
    "half of systemd's records": ("systemd", lambda entry, chance: entry.from_systemd and chance.random() < 0.5),
    "no core dumps": ("coredump", lambda entry, chance: bool(entry.get("COREDUMP_PID"))),
}


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_what_was_lost_is_never_confirmed_away(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    entries = list(read_json(folder / "journal.jsonl"))
    units = {run["unit"] for run in expected["runs"]}
    causes = {run["invocation_id"]: run["cause"] for run in expected["runs"]}
    gaps = [Gap(source=gap["source"], reason=gap["reason"]) for gap in expected.get("gaps", ())]
    for loss, (source, lost) in LOSSES.items():
        for seed in range(2):
            chance = random.Random(seed)
            kept = [entry for entry in entries if not lost(entry, chance)]
            judged = replay(kept, units, [*gaps, Gap(source=source, reason=loss)])
            if source != "systemd":
                died = {run for run, cause in causes.items() if run and cause}
                assert died <= {one.run.invocation_id for one in judged}, f"{loss}: a death without a verdict"
            for one in judged:
                cause = causes.get(one.run.invocation_id)
                if cause and one.verdict.cause != cause and one.verdict.strength == "confirmed":
                    assert (cause, one.verdict.cause) in AS_FAR_AS_IT_GOES, f"{loss}: {one.verdict.summary}"
