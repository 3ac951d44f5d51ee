"""clean-stop: the server was asked to stop and ended within the time, or ended by itself with status 0. No crash.

Signal:      PID 1's `Stopping …` (or a shutdown of the host) and no timeout; else exit status 0 without a failure.
Not this:    a stop that ran into its timeout; a failure from before the stop; SIGTERM from somebody else.
Followed by: SGLang up to 0.5.19 ends even a clean drain by SIGKILL of itself: Result=signal, status=9/KILL.
"""

from forensics.causality import NATIVE_SIGNALS, Ending
from forensics.events import HostShutdown
from forensics.model import Evidence, Finding, NotThis, Role, Strength
from forensics.rules.external_signal import cut_short


def match(ending: Ending) -> Finding | NotThis | None:
    run, stop = ending.run, ending.stop
    if ending.failure is not None or ending.echo is not None:
        return None
    if stop is not None:
        if ending.stop_timed_out is not None or (run.exit_status in NATIVE_SIGNALS and run.exit_code != "exited"):
            return None
        if cut_short(ending):
            return NotThis(why="somebody killed it before it could end by itself")
        how = "The host was shut down" if isinstance(stop, HostShutdown) else "A stop was asked for"
        evidence = [Evidence(role=Role.INITIATING, event=stop, why="the stop was asked for")]
        if ending.sigterm:
            evidence.append(Evidence(role=Role.CASCADE, event=ending.sigterm, why="SGLang began to drain"))
        if ending.main_exit:
            evidence.append(Evidence(role=Role.TEARDOWN, event=ending.main_exit, why="how the main process ended"))
        return Finding(
            strength=Strength.CONFIRMED,
            summary=f"{how} and the server ended within its time ({ending.exit_words}).",
            subclass="host-shutdown" if isinstance(stop, HostShutdown) else "requested",
            evidence=tuple(evidence),
        )
    # systemd is silent about a main process that ended well; the result is all it says.
    if ending.outsider is not None:
        return NotThis(why="a signal from outside ended it")
    ended_well = run.result == "success" and (run.exit_code, run.exit_status) in ((None, None), ("exited", 0))
    if ended_well and ending.sigterm is None and ending.interrupted is None and not ending.start_timed_out:
        return Finding(
            strength=Strength.LIKELY,
            summary="The server ended by itself without an error, and nobody asked systemd for it.",
            subclass="unasked",
            evidence=(),
            awaits=("kernel",),
            notes=("A process that ends by SIGTERM, SIGINT, SIGHUP or SIGPIPE counts as a success for systemd too.",),
        )
    return None
