"""What one line of a plain log says on its own: of the server, its launcher, the shell, a container runtime. Pure."""

import re
import signal
from dataclasses import replace

from forensics.analyze import other_servers as others
from forensics.analyze.units import FORKED, unit_in
from forensics.entry import Entry
from forensics.events import Batch, ChildDied, Event, Milestone, NativeAbort, ProcessExit, Record, ServerSignal
from forensics.redact import redact
from forensics.sources import sglang_lines, systemd
from forensics.sources.server import parse_figures

SOURCE = "server"


def told(entry: Entry, text: str, *, sglang: bool) -> list[Event]:
    """What a line says on its own, that the live reader takes only behind SGLang's prefix, or not at all."""
    record = note(entry)
    if ended := _ended(record, text):
        return [ended]
    if batch := sglang_lines.BATCH.match(text):
        return [Batch(record=record, phase=batch["phase"].lower(), values=parse_figures(batch["figures"]))]
    for row in sglang_lines.MILESTONES:
        if match := row.pattern.match(text):
            events: list[Event] = [Milestone(record=record, name=row.name, values=values_of(match))]
            return events
    if not sglang and others.READY.match(text):
        return [Milestone(record=record, name="ready")]
    for row in (*sglang_lines.SIGNALS, *others.SIGNALS):
        if match := row.pattern.match(text):
            return [ServerSignal(record=record, name=row.name, values=values_of(match))]
    if throughput := others.THROUGHPUT.search(text):
        return [_vllm_batch(record, throughput)]
    if others.ABORTED_WITHOUT.match(text):
        return [NativeAbort(record=record, exception="", what=text)]
    for row in others.ENGINE_DEATHS:
        if match := row.pattern.search(text):
            return [_child_died(record, match.groupdict())]
    return []


def _child_died(record: Record, at: dict[str, str | None]) -> ChildDied:
    pid, code = at.get("pid"), int(at["exit_code"] or 0) if at.get("exit_code") else None
    if name := at.get("signal"):
        number = getattr(signal, f"SIG{name}", None)
        code = -int(number) if number is not None else None
    elif word := at.get("word"):
        number = others.SHELL_SIGNALS.get(word.lower())
        code = -number if number is not None else None
    return ChildDied(
        record=record, child=at.get("child") or "engine", child_pid=int(pid) if pid else None, exit_code=code
    )


def claimed(entry: Entry, text: str) -> tuple[str, Event] | None:
    """A line in PID 1's words about a unit that it names."""
    if ".service" not in text[:200] or (unit := unit_in(text)) is None:
        return None
    fields = {"_PID": "1", "_TRANSPORT": "journal", "UNIT": unit, "MESSAGE": text}
    if FORKED.match(text):
        fields |= {"_PID": "0", "_COMM": "(systemd)", "MESSAGE_ID": systemd.SPAWN_FAILED}
    event = systemd.parse(replace(entry, fields=fields))
    return (unit, event) if event is not None else None


def note(entry: Entry) -> Record:
    """Where the line was read, secrets removed."""
    return entry.record(SOURCE, redact(entry.message))


def values_of(match: re.Match[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, redact(value.strip())) for name, value in match.groupdict().items() if value is not None)


def role_of(name: str) -> str:
    """vLLM's name of a process in the words used here."""
    if name.startswith("APIServer"):
        return "main"
    return "scheduler" if name.startswith(("EngineCore", "Worker")) else "child"


def _vllm_batch(record: Record, found: re.Match[str]) -> Batch:
    values = [
        ("running-req", found["running"]),
        ("queue-req", found["waiting"]),
        ("gen throughput (token/s)", found["tokens"]),
    ]
    if found["usage"]:
        values.append(("token usage", f"{float(found['usage']) / 100:.2f}"))
    return Batch(record=record, phase="decode", values=tuple(values))


def _ended(record: Record, text: str) -> ProcessExit | None:
    """The shell's or the container runtime's word on the end of the program."""
    stripped = text.strip()
    if len(stripped) > 400:
        return None
    number: int | None
    if code := others.EXIT_CODE.match(stripped):
        number = int(code["code"] or code["code2"] or code["code3"])
        if number > 128:
            return _exit(record, "killed", number - 128)
        return _exit(record, "exited", number)
    if others.GLUED_KILLED.match(stripped):
        return _exit(record, "killed", 9)
    shell = others.SHELL.fullmatch(stripped)
    if shell is None:
        return None
    number = others.SHELL_SIGNALS[shell["word"].lower()]
    if shell["number"] and int(shell["number"]) != number:
        return None
    return _exit(record, "dumped" if shell["core"] else "killed", number)


def _exit(record: Record, code: str, status: int) -> ProcessExit:
    return ProcessExit(record=record, process="main", command="", exit_code=code, exit_status=status)
