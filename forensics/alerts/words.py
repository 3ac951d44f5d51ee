"""What an alert says, in the order in which it is read at night: what died and why; whether the configuration is to
blame; what to do; the decisive line; where the rest stands. Pure; how it is written is in `rendering`.

The first sentence alone is what a telephone shows while it is locked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.inquest import duration
from forensics.public import when
from forensics.report import cut, decisive_evidence, decisive_line, one_line
from forensics.shapes import CrashShape
from forensics.store import Delivery
from forensics.store.telling import AMENDED, ANSWERING, FOLDED, HANG, RECOVERED, START_LIMIT

TEST = "test"
"""The kind of a sample, which somebody asked for."""

SENTENCE_CHARS = 400

# Said only where the cause itself settles it; a rule that knows more says so in its summary.
_BLAME = {
    "configuration-error": "The configuration is to blame.",
    "environment-error": "The installed environment is to blame, not the server's settings.",
    "host-reset": "Not the configuration: the host went down.",
    "gpu-fault": "Not the configuration: the GPU failed.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """An alert's text, each part on one line, none of it marked up. `title` is for where a subject is wanted; `line` is
    quoted from outside; what there is nothing to say of is empty."""

    title: str
    sentence: str
    blame: str = ""
    history: str = ""
    todo: str = ""
    line: str = ""
    link: str


def words(delivery: Delivery, *, host: str, link: str) -> Words:
    """The text of a message. `link` is the address of the API as people reach it."""
    where = f"{delivery.server} on {host}"
    crash = delivery.crash
    if crash is None:
        return Words(
            title=f"{where}: {_LIVING[delivery.kind]}",
            sentence=cut(" ".join(_living(delivery, where)), SENTENCE_CHARS),
            todo=_todo_hang(delivery) if delivery.kind == HANG else "",
            link=f"{link}/#/servers/{delivery.server}",
        )
    over = delivery.kind == RECOVERED or not crash["is_crash"]
    return Words(
        title=f"{_PREFIX.get(delivery.kind, '')}{where}: {_title(delivery, crash)}",
        sentence=cut(_PREFIX.get(delivery.kind, "") + "".join(_sentence(delivery, crash, where)), SENTENCE_CHARS),
        blame="" if over else _BLAME.get(crash["cause"], ""),
        history="" if over else _history(crash),
        todo="" if over else " ".join(_todo(delivery, crash)),
        line="" if over else _line(crash),
        link=f"{link}/crashes/{crash['id']}",
    )


_PREFIX = {AMENDED: "Corrected: ", TEST: "Test, nothing died: "}
_LIVING = {HANG: "does not answer", ANSWERING: "answers again", RECOVERED: "ready again"}


def _title(delivery: Delivery, crash: CrashShape) -> str:
    if delivery.kind == RECOVERED:
        return "ready again"
    if delivery.kind == START_LIMIT:
        return f"GIVEN UP after {_deaths(delivery.count)}, {crash['cause']}"
    if not crash["is_crash"]:
        return "no crash"
    return f"{_times(delivery.count)}, {crash['cause']}" if delivery.kind == FOLDED else str(crash["cause"])


def _sentence(delivery: Delivery, crash: CrashShape, where: str) -> Iterator[str]:
    yield where
    summary = one_line(crash["summary"])
    if delivery.kind == RECOVERED:
        yield f" is ready again after {_span(delivery)}"
        if delivery.count:
            yield f" and {_deaths(delivery.count, 'more ')}"
        yield f". It had {_died_of(crash)}: {summary}"
    elif delivery.kind == START_LIMIT:
        yield f" STAYS DOWN: systemd has given it up after {_deaths(delivery.count)} in {_span(delivery)}."
        yield f" The last time it {_died_of(crash)}: {summary}"
    elif delivery.kind == FOLDED:
        # The count follows the verb, so that a locked telephone shows it.
        yield f" died {_times(delivery.count)} in {_span(delivery)}, "
        yield f"ready again since {when(delivery.back_usec)[11:16]} UTC" if delivery.back_usec else "and is not back"
        yield f"; {_cause(crash)}: {summary}"
    elif not crash["is_crash"]:
        yield f" did not crash, it stopped as asked: {summary}"
    else:
        yield f" {_died_of(crash)}: {summary}"


def _died_of(crash: CrashShape) -> str:
    return f"died, {_cause(crash)}" if crash["cause"] == "unknown" else f"died of {_cause(crash)}"


def _cause(crash: CrashShape) -> str:
    """`kernel-oom (confirmed)`, `cause unknown`."""
    if crash["cause"] == "unknown":
        return "cause unknown"
    said = ", ".join(filter(None, [crash["strength"] or "", "" if crash["settled"] else "may still change"]))
    return f"{crash['cause']} ({said})" if said else crash["cause"]


def _times(more: int) -> str:
    return "once more" if more == 1 else f"{more} more times"


def _deaths(count: int, more: str = "") -> str:
    return f"{count} {more}{'death' if count == 1 else 'deaths'}"


def _span(delivery: Delivery) -> str:
    return duration(max(0.0, (delivery.until_usec - delivery.since_usec) / 1e6))


def _living(delivery: Delivery, where: str) -> Iterator[str]:
    yield where
    if delivery.kind == HANG:
        yield "runs but does not answer:"
        yield one_line(str(delivery.details.get("said", ""))) or "no answer to a health check"
    elif delivery.kind == ANSWERING:
        yield f"answers again after {_span(delivery)}"
    else:
        yield f"is ready again after {_span(delivery)}"


def _todo_hang(delivery: Delivery) -> str:
    if delivery.details.get("on_hang") == "restart":
        return "systemd ends and restarts it by itself when it stays so."
    return f'Restart it: systemctl restart {delivery.unit} (by itself systemd does so with on_hang = "restart").'


def _history(crash: CrashShape) -> str:
    history = crash["history"]
    told = history is not None and (history["occurrence"] > 1 or history["since_good"])
    return cut(history["sentence"]) if told and history is not None else ""


def _todo(delivery: Delivery, crash: CrashShape) -> Iterator[str]:
    yield from (cut(advice) for advice in crash["advice"][:1])
    if delivery.kind == START_LIMIT:
        unit = crash["unit"]
        yield f"Nothing starts it again by itself; then: systemctl reset-failed {unit} && systemctl start {unit}"


def _line(crash: CrashShape) -> str:
    if (decisive := decisive_evidence(crash)) is not None:
        return cut(decisive_line(decisive))
    if crash["gaps"]:
        return "Not seen: " + cut("; ".join(f"{gap['source']}: {gap['reason']}" for gap in crash["gaps"]))
    return ""
