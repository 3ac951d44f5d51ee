"""What is missing from the evidence, held against what was found. Pure.

A confirmed finding explains the end by a record that cannot be forged. It is only likely where the lines that could
have told of something earlier are known to be lost.
"""

import re
from dataclasses import replace

from forensics.causality import Ending
from forensics.failure import said
from forensics.model import Finding, Strength

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
    if cause == "kernel-oom":
        return finding.subclass.endswith("-main") and ending.run.main_pid is not None
    if cause == "exec-failure":
        return finding.subclass != "execstartpost"
    return cause in _STANDING


def _kernel_could_tell(ending: Ending, cause: str) -> str:
    """What a kernel log would have shown behind such a failure."""
    words = said(ending.failure)
    if cause == "cuda-error" and _HARDWARE.search(words):
        return "a fault of the GPU's hardware (Xid)"
    if cause in ("python-exception", "configuration-error") and _BUILD.search(words):
        return "the OOM killer's kill of a compiler"
    return ""
