"""preflight-refused: our own check before the start said no; SGLang was never started.

Signal:      PID 1's exit of an ExecStartPre=, and the check's line `inquest: preflight refused: …`; or status 78 of
             the unit that stands for a spec with mistakes, and its line `inquest: spec refused: …`.
Not this:    SGLang's own refusal after it was started: that is configuration-error.
Followed by: `Failed to start`, Result=exit-code; no restart helps before the reason is removed.
Needs:       PID 1's record and the check's own line, which stands in `systemctl status` as well.
To do:       remove what the check names, then start again; `inquest preflight NAME` shows every check.
"""

from forensics.causality import Ending
from forensics.events import LogStats, PreflightRefused
from forensics.failure import sentence
from forensics.model import Evidence, Finding, NotThis, Role, Strength

_SPEC_REFUSED = 78
_AT_ONCE_USEC = 10_000_000


def _something_ran(ending: Ending, exit_usec: int, refusals: int) -> bool:
    """Whether more was written than the refusals and their closing line, or later than at once."""
    logged = ending.timeline.first(LogStats)
    many = logged is not None and logged.lines > refusals + 1
    return many or exit_usec - ending.run.started_usec > _AT_ONCE_USEC


def match(ending: Ending) -> Finding | NotThis | None:
    exit_ = ending.start_step_failed
    if exit_ is not None and exit_.command in ("ExecStartPre", "") and ending.main_exit is None:
        # As long as ExecStartPre= runs there is no server that could have said it.
        refusals = [r for r in ending.timeline.all(PreflightRefused) if r.check not in ("spec", "not-ready")]
    else:
        exit_ = ending.main_exit
        refusals = [r for r in ending.timeline.all(PreflightRefused) if r.check == "spec"]
        if exit_ is None or exit_.exit_status != _SPEC_REFUSED or _something_ran(ending, exit_.usec, len(refusals)):
            return None
    if not refusals or exit_.exit_code != "exited":
        return None
    reasons = list(dict.fromkeys(refusal.reason for refusal in refusals))
    if refusals[0].check == "spec":
        # The last line says what to do.
        reasons = [reason for reason in reasons if not reason.startswith("nothing was started")] or reasons
    what = "The server's spec was refused" if refusals[0].check == "spec" else "The check before the start refused"
    return Finding(
        strength=Strength.CONFIRMED,
        summary=sentence(f"{what}: {'; '.join(reasons)}"),
        subclass=refusals[0].check,
        evidence=(
            *(Evidence(role=Role.INITIATING, event=refusal, why="the check's own words") for refusal in refusals[:8]),
            Evidence(role=Role.TEARDOWN, event=exit_, why="systemd's record of the check's exit"),
        ),
        key=tuple(dict.fromkeys(refusal.check for refusal in refusals)),
    )
