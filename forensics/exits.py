"""How the main process ended, as systemd recorded it: in words, and whether a failure leads to that. Pure."""

from collections.abc import Iterable

from forensics.events import FatalPythonError, NativeAbort, ServerError, ServerSignal
from forensics.fatality import NATIVE_SIGNALS, Failure
from forensics.model import Run
from forensics.stops import STREAM_SKEW_USEC

SIGNALS = NATIVE_SIGNALS | {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 13: "SIGPIPE", 15: "SIGTERM"}


def words(run: Run) -> str:
    """`exit status 1`, `SIGSEGV with a core dump` …"""
    code, status = run.exit_code, run.exit_status
    if code is None:
        return f"Result={run.result}" if run.result else "an end that systemd did not record"
    if code == "exited":
        return f"exit status {status}"
    name = SIGNALS.get(status or 0, f"signal {status}")
    return f"{name}{' with a core dump' if code == 'dumped' else ''}"


def explained(run: Run, failure: Failure, announced: Iterable[ServerSignal | None]) -> bool:
    """Whether such an end is what the failure leads to. `announced` are SGLang's words on killing itself: SIGKILL
    follows from a failure only by way of these."""
    code, status = run.exit_code, run.exit_status
    if code is None:
        return False
    if code == "exited":
        return status != 0
    if status == 9:
        return any(one is not None and one.usec >= failure.usec - STREAM_SKEW_USEC for one in announced)
    return status in NATIVE_SIGNALS and isinstance(failure, FatalPythonError | NativeAbort | ServerError)
