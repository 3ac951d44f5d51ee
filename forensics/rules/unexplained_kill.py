"""unexplained-kill: a process was killed, and the evidence that would say by whom is missing.

Signal:      death by SIGKILL (of main, or of a child as main tells it) with nothing decisive, and a source unread.
Not this:    a kill that the sources, all read, leave only an outsider for: that is external-signal.
Followed by: whatever the kill's cascade is; nothing here tells kernel, operator and container runtime apart.
Needs:       what is missing, which the verdict names: mostly the kernel's log, the server's log, or the trace of
             signals.
To do:       make the kernel log readable for the daemon (`journalctl -k` must show this boot), have journald keep all
             of the unit's lines (LogRateLimitIntervalSec=1us), have the kernel name the next sender (`systemctl enable
             --now inquest-sigtrace`): `inquest doctor` says what is open here.
"""

from forensics.causality import SIGNALS, Ending
from forensics.events import Event
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.senders import by_whom


def match(ending: Ending) -> Finding | NotThis | None:
    run = ending.run
    if ending.failure is not None or ending.stop is not None or ending.outsider is not None:
        return None
    sign: Event | None = None
    died = ending.child_died
    if died is not None and died.exit_code is not None and died.exit_code < 0:
        sign, name, victim = died, SIGNALS.get(-died.exit_code, f"signal {-died.exit_code}"), "child"
    elif ending.echo is not None:
        if died is not None and died.exit_code is not None:
            return None  # It left with a status.
        sign, name, victim = ending.echo, "", "child"
    elif run.exit_code in ("killed", "dumped"):
        sign, name, victim = ending.main_exit, SIGNALS.get(run.exit_status or 0, f"signal {run.exit_status}"), "main"
    else:
        return None
    question = "by whom" if ending.fatal_signal is None else "why"
    article = "The" if victim == "main" else "A"
    words = f"{article} {victim} process was ended by {name}" if name else f"A {victim} process was gone without a word"
    return Finding(
        strength=Strength.LIKELY,
        summary=f"{words}; {question} cannot be told: {_missing(ending)}.",
        subclass=victim,
        evidence=(
            (Evidence(role=Role.INITIATING, event=sign, why="the only trace that it left"), *ending.aftermath(sign))
            if sign
            else ()
        ),
        key=(name, victim),
        awaits=("kernel", "coredump", "sigtrace"),
    )


def _missing(ending: Ending) -> str:
    said = []
    if (sent := ending.fatal_signal) is not None:
        said.append(f"the signal was sent by {by_whom(ending.run, sent)}, but why is not recorded")
    if not ending.no_oom:
        said.append(f"an OOM kill is not excluded ({_why_not(ending)})")
    said += [f"{source}: {gap.reason}" for source in ("server", "systemd") for gap in ending.lost(source)]
    if not said:
        said.append("no source names a sender")
    return "; ".join(dict.fromkeys(said))


def _why_not(ending: Ending) -> str:
    if ending.oom_unread is not None:
        words = ending.oom_unread.record.message[:120]
        return f"the kernel speaks of an OOM kill in words that are not known: {words}"
    if ending.covers("kernel"):
        return "one was recorded in this unit, but it does not fit this end"
    return ending.why_not_covered("kernel")
