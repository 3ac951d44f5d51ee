"""preflight-refused: our own check before the start said no; SGLang was never started.

Signal:      PID 1's exit of an ExecStartPre=, and the check's line `inquest: preflight refused: …`.
Not this:    SGLang's own refusal after it was started: that is configuration-error.
Followed by: `Failed to start`, Result=exit-code; no restart helps before the reason is removed.
"""

from forensics.causality import Ending
from forensics.events import PreflightRefused
from forensics.model import Evidence, Finding, NotThis, Role, Strength


def match(ending: Ending) -> Finding | NotThis | None:
    refusals = list(ending.timeline.all(PreflightRefused))
    exit_ = ending.control_exit or ending.main_exit
    if not refusals or exit_ is None or exit_.exit_code != "exited" or exit_.exit_status == 0:
        return None
    return Finding(
        strength=Strength.CONFIRMED,
        summary="The check before the start refused: " + "; ".join(dict.fromkeys(r.reason for r in refusals)),
        subclass=refusals[0].check,
        evidence=(
            *(Evidence(role=Role.INITIATING, event=refusal, why="the check's own words") for refusal in refusals[:8]),
            Evidence(role=Role.TEARDOWN, event=exit_, why="systemd's record of the check's exit"),
        ),
        key=tuple(dict.fromkeys(refusal.check for refusal in refusals)),
    )
