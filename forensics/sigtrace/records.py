"""What the tracer writes into the journal: field names are stable, the message is for people. Pure."""

import signal
from dataclasses import dataclass

from forensics.sigtrace import INTERRUPTED, SIGNAL_SENT, WATCHING
from forensics.sigtrace.pipe import Signal
from forensics.sigtrace.process import Process
from forensics.sigtrace.watched import unit_of

Fields = dict[str, str]

WARNING, NOTICE, INFO = "4", "5", "6"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The process that a signal was for, and the run that it belongs to."""

    pid: int
    unit: str
    invocation_id: str


def signal_sent(sent: Signal, sender: Process, sender_unit: str, target: Target) -> Fields:
    """The record of one signal. An empty field could not be read any more; INQUEST_SENDER_MISSING names them."""
    unit = sender_unit or unit_of(sender.cgroup)
    comm = sender.comm or sent.sender_comm
    fields = {
        "MESSAGE_ID": SIGNAL_SENT,
        "PRIORITY": NOTICE,
        "INQUEST_MONOTONIC_USEC": str(sent.usec),
        "INQUEST_SIGNAL": str(sent.signal),
        "INQUEST_SI_CODE": str(sent.code),
        "INQUEST_FROM_KERNEL": str(int(sent.from_kernel)),
        "INQUEST_SENDER_PID": str(sender.pid),
        "INQUEST_SENDER_COMM": comm,
        "INQUEST_SENDER_CMDLINE": sender.cmdline,
        "INQUEST_SENDER_UID": _text(sender.uid),
        "INQUEST_SENDER_LOGIN_UID": _text(sender.login_uid),
        "INQUEST_SENDER_PARENT_PID": _text(sender.parent_pid),
        "INQUEST_SENDER_PARENT_CMDLINE": sender.parent_cmdline,
        "INQUEST_SENDER_UNIT": unit,
        "INQUEST_SENDER_SESSION": unit if unit.startswith("session-") else "",
        "INQUEST_SENDER_CGROUP": sender.cgroup,
        "INQUEST_SENDER_INNER_PID": str(sender.inner_pids[-1]) if sender.inner_pids else "",
        "INQUEST_SENDER_MISSING": ", ".join(sender.missing),
        "INQUEST_TARGET_PID": str(target.pid),
        "INQUEST_TARGET_COMM": sent.target_comm,
        "INQUEST_TARGET_THREAD": str(int(sent.to_thread)),
        **_about(target.unit, target.invocation_id),
    }
    by = "by the kernel, in" if sent.from_kernel else "by"
    detail = ", ".join([f"`{sender.cmdline}`"] * bool(sender.cmdline) + [unit] * bool(unit))
    fields["MESSAGE"] = (
        f"{name(sent.signal)} to {sent.target_comm} [{target.pid}] of {target.unit} "
        f"{by} {comm or 'a process that is gone'} [{sender.pid}]{f': {detail}' if detail else ''}"
    )
    return fields


def watching(unit: str, invocation_id: str, since_usec: int) -> Fields:
    return {
        "MESSAGE": f"tracing the signals to {unit}",
        "MESSAGE_ID": WATCHING,
        "PRIORITY": INFO,
        "INQUEST_SINCE_USEC": str(since_usec),
        **_about(unit, invocation_id),
    }


def interrupted(reason: str, usec: int) -> Fields:
    return {
        "MESSAGE": f"signals may have passed unseen: {reason}",
        "MESSAGE_ID": INTERRUPTED,
        "PRIORITY": WARNING,
        "INQUEST_REASON": reason,
        "INQUEST_MONOTONIC_USEC": str(usec),
    }


def name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _about(unit: str, invocation_id: str) -> Fields:
    """With OBJECT_SYSTEMD_UNIT=, `journalctl -u UNIT` shows the record among the unit's own."""
    return {
        "INQUEST_TARGET_UNIT": unit,
        "INQUEST_TARGET_INVOCATION_ID": invocation_id,
        "OBJECT_SYSTEMD_UNIT": unit,
    }


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
