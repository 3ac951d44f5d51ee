"""host-reset: the boot ended without an end of the run: power, panic, reset, a wedged machine.

Signal:      the journal of the boot simply ends, and another boot follows.
Not this:    an orderly shutdown or reboot (`Shutting down.`), which is a clean stop.
Followed by: nothing. What was not yet on disk is lost, seconds of it: the machine may have died later than it seems.
Needs:       a journal that outlives the boot (Storage=persistent), and both boots in it.
To do:       look at the power supply, the BMC's log, and the kernel's last lines on a serial console.
"""

from forensics.causality import Ending
from forensics.events import BootEnded, DriverNoMemory
from forensics.model import Evidence, Finding, NotThis, Role, Strength

_WHAT = "Power, a panic or a reset"
_STARVED = "Before that the GPU driver could not get host memory, of which such machines hang"


def match(ending: Ending) -> Finding | NotThis | None:
    ended = ending.timeline.first(BootEnded)
    if ended is None or ended.orderly or ending.main_exit is not None:
        return None
    starved = ending.timeline.last(DriverNoMemory)
    context = (Evidence(role=Role.CONTEXT, event=starved, why="the driver was out of host memory"),) if starved else ()
    return Finding(
        strength=Strength.LIKELY,
        summary="The machine went down with the server running: its journal ends without a shutdown, and another boot "
        f"follows. {_STARVED if starved else _WHAT}; the server itself recorded no failure.",
        subclass="host-memory-exhausted" if starved else "unclean-boot-end",
        evidence=(Evidence(role=Role.INITIATING, event=ended, why="no record of a shutdown"), *context),
        key=("host-reset",),
        notes=("What journald had not yet written to disk is lost with the machine.",),
    )
