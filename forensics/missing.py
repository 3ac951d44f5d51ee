"""What is missing from the evidence, held against what was found. Pure.

A confirmed finding explains the end by a record that cannot be forged. It is only likely where the lines that could
have told of something earlier are known to be lost.
"""

import re
from dataclasses import replace

from forensics.causality import Ending
from forensics.failure import said
from forensics.model import Finding, Role, Strength

_STANDING = ("preflight-refused", "external-signal", "userspace-oom-kill", "gpu-fault", "host-reset")
"""Whatever else was said: an outsider's record names what ended the run."""

_HARDWARE = re.compile(r"unspecified launch failure|unknown error|ECC|NVLink|hardware|busy or unavailable|lost")
_BUILD = re.compile(r"[Nn]inja|nvcc|cicc|ptxas|cc1plus|subcommand failed")


def weighed(ending: Ending, cause: str, finding: Finding) -> Finding:
    """The finding, no stronger than what could be read allows."""
    if finding.strength is not Strength.CONFIRMED:
        return finding
    if not _stands(ending, cause, finding):
        for source, what in (("server", "the server's log"), ("systemd", "systemd's records")):
            if ending.lost(source):
                reason = ending.why_not_covered(source)
                return _only_likely(finding, f"Part of {what} is missing ({reason}): it may tell of another cause.")
        if _follows_an_oom_kill(ending, cause, finding):
            return _only_likely(finding, "systemd had counted an OOM kill in this unit; of what, no record tells.")
    if ending.covers("kernel"):
        return finding
    if open_ := _kernel_could_tell(ending, cause):
        return _only_likely(finding, f"The kernel log could not be read, so {open_} is not excluded.")
    if cause == "cuda-error" or (cause == "hang" and finding.subclass != "service-watchdog"):
        note = "The kernel log could not be read: whether the GPU's hardware is behind it (Xid) is not known."
        return replace(finding, notes=(*finding.notes, note))
    return finding


def _only_likely(finding: Finding, note: str) -> Finding:
    return replace(finding, strength=Strength.LIKELY, notes=(*finding.notes, note))


def _stands(ending: Ending, cause: str, finding: Finding) -> bool:
    step = ending.start_step_failed
    if cause == "kernel-oom" and step is not None and step.command == "ExecStartPre":
        return True  # There was no server yet that could have said anything.
    if cause == "kernel-oom":
        return finding.subclass.endswith("-main") and ending.run.main_pid is not None
    if cause == "exec-failure":
        return finding.subclass != "execstartpost"
    return cause in _STANDING


def _follows_an_oom_kill(ending: Ending, cause: str, finding: Finding) -> bool:
    """Whether systemd's count of an OOM kill stands before what the finding begins with."""
    counted = ending.oom_untold
    begun = [piece.event.usec for piece in finding.evidence if piece.role is Role.INITIATING]
    return cause != "kernel-oom" and counted is not None and bool(begun) and counted.usec <= min(begun)


def _kernel_could_tell(ending: Ending, cause: str) -> str:
    """What a kernel log would have shown behind such a failure."""
    words = said(ending.failure)
    if cause == "cuda-error" and _HARDWARE.search(words):
        return "a fault of the GPU's hardware (Xid)"
    if cause in ("python-exception", "configuration-error", "environment-error") and _BUILD.search(words):
        return "the OOM killer's kill of a compiler"
    step = ending.start_step_failed
    if cause == "exec-failure" and step is not None and (step.exit_code, step.exit_status) == ("killed", 9):
        return "the OOM killer's kill of that step"
    return ""
