"""What PID 1 knows of the watched units, over D-Bus. The journal is the record; this is the state while it lasts.

Units that are not loaded are never asked about: reading their properties would load them. Properties of a run are
believed only while InvocationID is still that run's, since a restart overwrites all of them.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.errors import SourceError
from forensics.events import UnitState
from forensics.sources.clock import sampled_now

SOURCE = "unit"

_DESTINATION = b"org.freedesktop.systemd1"
_MANAGER_PATH = b"/org/freedesktop/systemd1"
_NO_LIMIT = (1 << 64) - 1
_CODES = {1: "exited", 2: "killed", 3: "dumped"}

# (interface, property, D-Bus type) in the order of `_state`
_PROPERTIES = (
    ("Service", "Result", b"s"),
    ("Service", "ExecMainPID", b"u"),
    ("Service", "ExecMainCode", b"i"),
    ("Service", "ExecMainStatus", b"i"),
    ("Service", "NRestarts", b"u"),
    ("Service", "ControlGroup", b"s"),
    ("Service", "TimeoutStopUSec", b"t"),
    ("Service", "MemoryMax", b"t"),
    ("Service", "OOMPolicy", b"s"),
    ("Service", "Restart", b"s"),
    ("Service", "RestartUSec", b"t"),
    ("Service", "Environment", b"as"),
)

_LAUNCH_BLOCKING = frozenset({"CUDA_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=3", "ASCEND_LAUNCH_BLOCKING=1"})
"""What makes CUDA, ROCm or an NPU wait for each kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveUnit:
    """A loaded unit that has, or just had, a run."""

    unit: str
    invocation_id: str
    active_state: str
    sub_state: str
    path: str


class UnitBus:
    """The system's D-Bus connection, opened when first needed and again after it broke."""

    def __init__(self) -> None:
        self._bus: Any = None

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def live_units(self, globs: Sequence[str]) -> list[LiveUnit]:
        """The loaded units that match and have an invocation. One call, and one more for each unit that is not at
        rest. SourceError when the bus or PID 1 does not answer."""
        listed = self._call("ListUnitsByPatterns", b"asas", [[], [glob.encode() for glob in globs]])
        units = []
        for name, _, load_state, active_state, sub_state, _, path, *_ in listed:
            if load_state != b"loaded" or active_state == b"inactive":
                continue
            if invocation_id := bytes(self._get(path, "Unit", "InvocationID", b"ay") or b"").hex():
                units.append(
                    LiveUnit(
                        unit=name.decode(),
                        invocation_id=invocation_id,
                        active_state=active_state.decode(),
                        sub_state=sub_state.decode(),
                        path=path.decode(),
                    )
                )
        return units

    def sample(self, live: LiveUnit) -> UnitState | None:
        """The unit's properties; None when another run began meanwhile. SourceError as above."""
        path = live.path.encode()
        values = [self._get(path, interface, name, signature) for interface, name, signature in _PROPERTIES]
        if bytes(self._get(path, "Unit", "InvocationID", b"ay") or b"").hex() != live.invocation_id:
            return None
        return _state(live, values)

    def _call(self, method: str, signature: bytes, args: list[Any]) -> Any:
        return self._try(
            lambda bus, dbuslib: (
                bus.call_method(
                    _DESTINATION,
                    _MANAGER_PATH,
                    b"org.freedesktop.systemd1.Manager",
                    method.encode(),
                    dbuslib.apply_signature(signature, args),
                ).body
            )
        )

    def _get(self, path: bytes, interface: str, name: str, signature: bytes) -> Any:
        full = f"org.freedesktop.systemd1.{interface}".encode()
        return self._try(lambda bus, _: bus.get_property(_DESTINATION, path, full, name.encode(), signature))

    def _try(self, call: Any) -> Any:
        # PID 1 may hang; libsystemd would wait for it for 25 s.
        os.environ.setdefault("SYSTEMD_BUS_TIMEOUT", "2s")
        from pystemd import dbusexc, dbuslib

        try:
            if self._bus is None:
                self._bus = dbuslib.DBus()
                self._bus.open()
            return call(self._bus, dbuslib)
        except (dbusexc.DBusUnknownPropertyError, dbusexc.DBusUnknownObjectError, dbusexc.DBusUnknownInterfaceError):
            return None
        except (dbusexc.DBusBaseError, OSError) as error:
            self.close()
            raise SourceError(SOURCE, "bus-silent", f"systemd does not answer over D-Bus: {error}") from error


def launch_blocking(environment: Iterable[str]) -> bool:
    """Whether a unit's `Environment=` has kernels waited for. Nothing else of it is kept: secrets stand there."""
    return not _LAUNCH_BLOCKING.isdisjoint(environment)


def _state(live: LiveUnit, values: list[Any]) -> UnitState:
    result, pid, code, status, n_restarts, control_group, timeout_stop, memory_max, oom_policy, *restarting = values
    restart, restart_usec, environment = restarting
    died = f", main process {_CODES[code]} {status}" if code in _CODES else ""
    message = f"{live.unit}: {live.active_state} ({live.sub_state}), result {_text(result)}{died}"
    return UnitState(
        record=sampled_now(SOURCE, f"dbus {live.path}", message),
        active_state=live.active_state,
        sub_state=live.sub_state,
        result=_text(result),
        exec_main_pid=pid or None,
        exec_main_code=code,
        exec_main_status=status,
        n_restarts=n_restarts,
        control_group=_text(control_group),
        timeout_stop_usec=None if timeout_stop == _NO_LIMIT else timeout_stop,
        memory_max_bytes=None if memory_max == _NO_LIMIT else memory_max,
        oom_policy=_text(oom_policy) or None,
        restart=_text(restart) or None,
        restart_usec=None if restart_usec == _NO_LIMIT else restart_usec,
        launch_blocking=launch_blocking(map(_text, environment or ())),
    )


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""
