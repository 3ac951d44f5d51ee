"""`python -m forensics.sigtrace [GLOB…]`: trace the signals to the processes of the units that match.

Without a glob those of /etc/inquest/inquestd.toml. Exit status: 0 stopped, or signals cannot be traced on this machine
(as said in a line); 2 the settings are wrong.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from systemd import daemon, journal

from forensics.sigtrace import records
from forensics.sigtrace.instance import NotTraceable, TraceInstance
from forensics.sigtrace.tracer import Tracer
from forensics.sigtrace.watched import Watched

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel: the trace speaks of pids of this namespace only."""
IDENTIFIER = "inquest-sigtrace"


class _Stop(Exception):
    pass


def main(globs: list[str]) -> int:
    if not globs:
        return _with_globs_of_settings()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    # A killall of Python programs is for others, and should be seen.
    Path("/proc/self/comm").write_text(IDENTIFIER[:15])
    try:
        if os.readlink("/proc/self/ns/pid") != _FIRST_PID_NAMESPACE:
            raise NotTraceable("this is a container: the kernel's trace knows its processes by other pids")
        with TraceInstance() as instance:
            tracer = Tracer(instance, Watched(globs), _send)
            try:
                tracer.step()
                daemon.notify(f"READY=1\nSTATUS=Tracing the signals to {', '.join(globs)}")
                tracer.run()
            except _Stop:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                tracer.stop()
    except _Stop:
        pass
    except NotTraceable as error:
        sys.stderr.write(f"signals cannot be traced, and verdicts will not name their senders: {error}\n")
        # Done, rather than failed: systemd would try again for ever.
        daemon.notify("READY=1\nSTATUS=Signals cannot be traced here")
    return 0


def _with_globs_of_settings() -> int:
    """What checks the settings is large and needed once: the program is executed anew without it."""
    from forensics.errors import InquestError
    from forensics.settings import load

    try:
        units = load().units
    except InquestError as error:
        sys.stderr.write(f"{error.message}\n{error.hint}\n")
        return 2
    os.execv(sys.executable, [sys.executable, "-m", "forensics.sigtrace", *units])  # noqa: S606 - our own program


def _send(fields: records.Fields) -> None:
    journal.sendv(f"SYSLOG_IDENTIFIER={IDENTIFIER}", *(f"{name}={value}" for name, value in fields.items()))


def _stop(signum: int, frame: FrameType | None) -> None:
    raise _Stop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
