"""native-crash: SIGSEGV, SIGABRT, SIGBUS, SIGILL … of a process of ours, raised by its own code.

Signal:      PID 1's `code=dumped` or `killed` by such a signal, a core dump, the kernel's segfault line, faulthandler.
Not this:    systemd's SIGABRT to all (watchdog, abort at a stop); an abort that carries a CUDA or NCCL error.
Followed by: for a child `crashed with exit code -11`, EOFError, SIGQUIT to main, SGLang's SIGKILL of itself.
Needs:       PID 1's record of the exit, systemd-coredump or the kernel's segfault line, and faulthandler's stack in the
             log for a child.
To do:       read the core's stacks with `coredumpctl info`; where none was kept, set limit_core in the spec. After
             SIGBUS look at /dev/shm first (`df -h /dev/shm`).
"""

from forensics.causality import NATIVE_SIGNALS, Ending
from forensics.events import (
    CoreDump,
    Event,
    FatalPythonError,
    NativeAbort,
    ProcessExit,
    Segfault,
    ServerError,
    SystemdKill,
)
from forensics.failure import KEY_CHARS, innermost, said, stable
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.senders import by_whom

_LAST_WORDS = ("glibc-abort", "c-assert", "llvm-error", "caught-signal", "failed-check")
_NAMED = {"Segmentation fault": 11, "Aborted": 6, "Bus error": 7, "Illegal instruction": 4, "SIGSEGV": 11,
          "SIGABRT": 6, "SIGBUS": 7, "SIGILL": 4, "Floating": 8, "SIGFPE": 8}  # fmt: skip
"""As faulthandler, UCX, glog and absl call them."""

_BARE = "There is no core, no word of the process and no record of the kernel's: such a signal can be sent by anybody."


def match(ending: Ending) -> Finding | NotThis | None:
    if (sent := ending.outsider) is not None and sent.signal in NATIVE_SIGNALS:
        return NotThis(why=f"{NATIVE_SIGNALS[sent.signal]} was sent from outside, by {by_whom(ending.run, sent)}")
    if (order := _ordered_abort(ending)) is not None:
        return NotThis(why=f"systemd itself had it aborted: {order.record.message[:120]}")
    failure = ending.failure
    told = failure if isinstance(failure, FatalPythonError | NativeAbort) else _glibc(failure)
    if failure is not None and told is None:
        return None  # A Python exception came first; whatever aborted later is its cascade.
    witnesses: list[tuple[Event, str]] = []
    signal, victim = _signal(ending)
    if signal is None and told is not None:
        signal = _spoken(told)
    if ending.core_dump is not None:
        witnesses.append((ending.core_dump, "systemd-coredump caught it"))
    if ending.segfault is not None:
        witnesses.append((ending.segfault, "the kernel's record of the fault"))
    if signal is None and not witnesses and told is None:
        covered = ending.covers("kernel") and ending.covers("coredump")
        return NotThis(why="no core dump, no fault in the kernel log, no death by such a signal") if covered else None
    if told is not None:
        witnesses.insert(0, (told, "what the process said as it died"))
    exit_event = ending.main_exit if victim == "main" else ending.child_died
    if exit_event is not None:
        witnesses.append((exit_event, "how it ended"))
    name = NATIVE_SIGNALS.get(signal or 0, "a fatal signal")
    certain = any(_proves(event) for event, _ in witnesses)
    first, why = witnesses[0]
    line = said(told).splitlines()[0] if isinstance(told, NativeAbort | ServerError) else ""
    words = f": {line[:160]}" if line else ""
    place = innermost(told) if told is not None else ""
    return Finding(
        strength=Strength.CONFIRMED
        if certain or (told is not None and told.record.pid is not None and ending.explains_exit(told))
        else Strength.LIKELY,
        summary=f"The {victim} process crashed in native code by {name}{words}{f' ({place})' if place else ''}.",
        subclass=f"{name.lower()}-{victim}" if signal else victim,
        evidence=(
            Evidence(role=Role.INITIATING, event=first, why=why),
            *(Evidence(role=Role.INITIATING, event=event, why=said_why) for event, said_why in witnesses[1:]),
            *(entry for entry in ending.aftermath(first) if entry.event not in [event for event, _ in witnesses]),
        ),
        key=(name, victim, stable(place or line)[:KEY_CHARS]),
        notes=() if certain or told is not None else (_BARE,),
    )


def _proves(event: Event) -> bool:
    """A core, or the kernel's record of the fault. The number of the signal alone does not: anybody may send one."""
    return isinstance(event, CoreDump | Segfault) or (isinstance(event, ProcessExit) and event.exit_code == "dumped")


def _ordered_abort(ending: Ending) -> Event | None:
    """systemd's SIGABRT to all, for its watchdog or at the end of a stop: whatever dumps core then was told to."""
    orders = [kill for kill in ending.timeline.all(SystemdKill) if kill.signal == "SIGABRT"]
    first = ending.failure
    return next((order for order in orders if first is None or order.usec <= first.usec), None)


def _glibc(failure: object) -> ServerError | None:
    named = isinstance(failure, ServerError) and failure.name in _LAST_WORDS
    return failure if named and isinstance(failure, ServerError) else None


def _spoken(told: FatalPythonError | NativeAbort | ServerError) -> int:
    """The signal by the dying process's own words: who says nothing else aborts."""
    words = told.error if isinstance(told, FatalPythonError) else said(told)
    return next((number for word, number in _NAMED.items() if words.startswith(word)), 6)


def _signal(ending: Ending) -> tuple[int | None, str]:
    """The signal and whose death it was: main's by systemd's record, a child's by main's or the dump's."""
    run, died = ending.run, ending.child_died
    if run.exit_code in ("killed", "dumped") and run.exit_status in NATIVE_SIGNALS:
        return run.exit_status, "main"
    if died is not None and died.exit_code is not None and -died.exit_code in NATIVE_SIGNALS:
        return -died.exit_code, run.pids.get(died.child_pid or 0, "") or "child"
    if ending.core_dump is not None:
        pid = ending.core_dump.coredump_pid
        return ending.core_dump.signal, "main" if pid == run.main_pid else run.pids.get(pid, "") or "child"
    return (11 if ending.segfault is not None else None), "child"
