"""Who sent a signal: what `inquest-sigtrace.service`, where it runs, wrote into the journal. See forensics/sigtrace."""

from dataclasses import replace

from forensics.entry import Entry
from forensics.events import Event, Record, SignalSent, SignalTracing
from forensics.redact import redact
from forensics.sigtrace import INTERRUPTED, SIGNAL_SENT, UNIT, WATCHING

SOURCE = "sigtrace"

MESSAGE_IDS = (SIGNAL_SENT, WATCHING, INTERRUPTED)


def parse(entry: Entry) -> Event | None:
    """A fact of the tracer's, believed because journald says that root wrote it in that unit; None for the rest."""
    message_id = entry.get("MESSAGE_ID")
    if message_id not in MESSAGE_IDS or entry.get("_UID") != "0" or entry.get("_SYSTEMD_UNIT") != UNIT:
        return None
    if message_id == SIGNAL_SENT:
        return _signal_sent(entry)
    since = entry.get_int("INQUEST_SINCE_USEC")
    if message_id == WATCHING and since is None:
        return None
    return SignalTracing(record=_record(entry), since_usec=since if message_id == WATCHING else None)


def target(entry: Entry) -> tuple[str, str]:
    """The unit and the invocation id that a record is about; both empty when it is about all."""
    return entry.get("INQUEST_TARGET_UNIT"), entry.get("INQUEST_TARGET_INVOCATION_ID")


def _signal_sent(entry: Entry) -> SignalSent | None:
    signal, target_pid = entry.get_int("INQUEST_SIGNAL"), entry.get_int("INQUEST_TARGET_PID")
    sender_pid = entry.get_int("INQUEST_SENDER_PID")
    if signal is None or target_pid is None or sender_pid is None:
        return None
    return SignalSent(
        record=_record(entry),
        signal=signal,
        sender_pid=sender_pid,
        sender_comm=entry.get("INQUEST_SENDER_COMM"),
        from_kernel=entry.get("INQUEST_FROM_KERNEL") == "1",
        target_pid=target_pid,
        target_comm=entry.get("INQUEST_TARGET_COMM"),
        sender_detail=_detail(entry),
        sender_unit=entry.get("INQUEST_SENDER_UNIT"),
        target_unit=entry.get("INQUEST_TARGET_UNIT"),
    )


def _record(entry: Entry) -> Record:
    """The kernel's own stamp where there is one: the record was written a moment later."""
    record = entry.record(SOURCE, redact(entry.message))
    stamp = entry.get_int("INQUEST_MONOTONIC_USEC")
    if stamp is None or not 0 <= stamp <= entry.monotonic_usec:
        return record
    return replace(record, monotonic_usec=stamp, realtime_usec=entry.realtime_usec - (entry.monotonic_usec - stamp))


def _detail(entry: Entry) -> str:
    """What is known of the sender beside pid and name, and what is not."""
    parts = []
    if cmdline := entry.get("INQUEST_SENDER_CMDLINE"):
        parts.append(f"`{redact(cmdline)}`")
    if uid := entry.get("INQUEST_SENDER_UID"):
        login = entry.get("INQUEST_SENDER_LOGIN_UID")
        parts.append(f"uid {uid}" + (f" (logged in as uid {login})" if login not in ("", uid) else ""))
    if unit := entry.get("INQUEST_SENDER_UNIT"):
        inner = entry.get("INQUEST_SENDER_INNER_PID")
        parts.append(unit + (f" (a container, pid {inner} in it)" if inner else ""))
    if parent := entry.get("INQUEST_SENDER_PARENT_CMDLINE"):
        parts.append(f"started by `{redact(parent)}`")
    if missing := entry.get("INQUEST_SENDER_MISSING"):
        parts.append(f"gone before its {missing} could be read")
    return ", ".join(parts)
