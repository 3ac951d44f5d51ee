"""Which messages arise from what happened, after what was told before. Pure: the same past gives the same messages.

One message a death. Repeats of one death on one server are gathered and told together, after a while that grows; a
server that is ready again is told once it has stayed so; one that systemd has given up is told at once, with all that
was gathered.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from forensics.store.telling import (
    AMENDED,
    ANSWERING,
    CRASH,
    DELIVERED,
    FOLDED,
    HANG,
    RECOVERED,
    START_LIMIT,
    SUPERSEDED,
    WAITING,
    Happening,
    Message,
    Past,
)

TAKEN_IN = "taken_in"
"""In the details of a return: the gathered messages that it tells in their stead."""

PLANNED = "planned_usec"
"""In the details of a gathered message: when it is told if the server is back by then."""

CALM_USEC = 3_600_000_000
"""The same death after a longer time than this is told by itself again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How one channel is told. `gather_seconds` are how long repeats are gathered, one time after the other, the last
    again and again; none at all means that every death is told by itself. `stays_seconds` is how long a server must
    have been ready before that is told."""

    gather_seconds: tuple[float, ...] = ()
    stays_seconds: float = 30.0

    def gather_usec(self, rung: int) -> int:
        return int(self.gather_seconds[min(rung, len(self.gather_seconds) - 1)] * 1e6)


def decide(happening: Happening, past: Past, manner: Manner, *, wanted: bool) -> tuple[Message, ...]:
    """Messages to be written: new ones (`id` 0) and changed ones. `wanted` is whether the channel wants to be told of
    such a thing at all; who was told of something is told in any case how it went on."""
    match happening.kind:
        case "crash":
            changed = {message.id: message for message in _overtaken(past)}
            now = replace(past, messages=tuple(changed.get(one.id, one) for one in past.messages))
            if wanted:
                changed |= {message.id: message for message in _death(happening, now, manner)}
            return tuple(changed.values())
        case "amended":
            return tuple(_amended(happening, past, manner, wanted=wanted))
        case "start-limit":
            return tuple(_start_limit(happening, past)) if wanted else ()
        case "ready":
            return tuple(_ready(happening, past, manner))
        case "hang":
            return tuple(_hang(happening, past)) if wanted else ()
        case "answering":
            return tuple(_answering(happening, past))
    raise AssertionError(happening.kind)


def _overtaken(past: Past) -> Iterator[Message]:
    """A server that is dead again is not back, and does not hang any more. What its return would have told of is
    gathered on."""
    over = [one for one in past.messages if one.fresh and one.kind in (RECOVERED, HANG, ANSWERING)]
    yield from (replace(message, state=SUPERSEDED) for message in over)
    taken_in = {number for message in over for number in message.details.get(TAKEN_IN, ())}
    for message in past.messages:
        if message.id in taken_in or (message.kind == FOLDED and message.fresh):
            yield replace(message, state=WAITING, back_usec=0, down=True)


def _death(happening: Happening, past: Past, manner: Manner) -> tuple[Message, ...]:
    alike = [
        message
        for message in past.messages
        if message.fingerprint == happening.fingerprint and message.kind in (CRASH, AMENDED, FOLDED)
    ]
    told = [message for message in alike if message.state != SUPERSEDED]
    alone = _message(happening, CRASH, since_usec=happening.at_usec)
    if not manner.gather_seconds or not told:
        return (alone,)
    if happening.at_usec - max(message.until_usec for message in alike) > CALM_USEC:
        return (alone,)
    rung = sum(message.kind == FOLDED for message in takewhile(lambda one: one.kind != CRASH, told))
    if told[0].kind == FOLDED and told[0].fresh:
        planned_usec, since_usec, count = _planned(told[0]), told[0].since_usec, told[0].count + 1
    else:
        planned_usec = max(happening.now_usec, told[0].due_usec + manner.gather_usec(rung))
        since_usec, count = told[0].until_usec, 1
    last = _last_told(past)
    thought_up = last is not None and not last.down
    # Whoever was told that it is up does not wait for half a day to hear that it is not.
    soon_usec = happening.now_usec + manner.gather_usec(min(rung, 1))
    return (
        replace(
            alone,
            id=told[0].id if count > 1 else 0,
            kind=FOLDED,
            due_usec=min(planned_usec, soon_usec) if thought_up else planned_usec,
            count=count,
            since_usec=since_usec,
            until_usec=max(happening.at_usec, told[0].until_usec),
            details={**alone.details, PLANNED: planned_usec},
        ),
    )


def _amended(happening: Happening, past: Past, manner: Manner, *, wanted: bool) -> Iterator[Message]:
    """Whoever was told the verdict before is told the new one; what still waits to tell the old one is dropped."""
    mine = [
        message
        for message in past.messages
        if message.about == happening.invocation_id
        and message.kind in (CRASH, AMENDED)
        and message.state in (WAITING, DELIVERED)
    ]
    yield from (replace(message, state=SUPERSEDED) for message in mine if message.state == WAITING)
    known = any(message.state == DELIVERED or message.tried for message in mine)
    if mine and (happening.is_crash or known):
        last = _last_told(past)
        yield replace(
            # Nobody calls that a correction who never saw what is corrected.
            _message(happening, AMENDED if known else CRASH, since_usec=happening.at_usec),
            count=0 if known else 1,
            # It can come when the server is long back.
            down=happening.is_crash and last is not None and last.down,
        )
    elif not mine and happening.is_crash and wanted:
        yield from _death(happening, past, manner)


def _start_limit(happening: Happening, past: Past) -> Iterator[Message]:
    gathering = _gathering(past)
    deaths = [*gathering, *(message for message in _while_down(past) if message.kind != HANG)]
    yield from (replace(message, state=SUPERSEDED) for message in gathering)
    yield replace(
        _message(happening, START_LIMIT, since_usec=min((one.since_usec for one in deaths), default=happening.at_usec)),
        count=max(1, sum(message.count for message in deaths)),
    )


def _ready(happening: Happening, past: Past, manner: Manner) -> Iterator[Message]:
    gathering = _gathering(past)
    told = _last_told(past)
    if told is None or not told.down or happening.at_usec <= told.until_usec:
        # Nobody waits for it. What is gathered says so when its time has come.
        for message in gathering:
            yield replace(message, back_usec=happening.at_usec, down=False, due_usec=_planned(message))
        return
    yield from (replace(message, state=SUPERSEDED) for message in gathering)
    last = gathering[0] if gathering else told
    first_usec = min((message.since_usec for message in _while_down(past)), default=told.since_usec)
    yield Message(
        kind=RECOVERED,
        due_usec=max(happening.now_usec, happening.at_usec + int(manner.stays_seconds * 1e6)),
        about=last.about,
        revision=last.revision,
        fingerprint=last.fingerprint,
        count=sum(message.count for message in gathering),
        since_usec=past.served_until_usec or first_usec,
        until_usec=happening.at_usec,
        back_usec=happening.at_usec,
        down=False,
        details={**last.details, TAKEN_IN: [message.id for message in gathering]},
    )


def _hang(happening: Happening, past: Past) -> Iterator[Message]:
    told = _last_told(past)
    if told is None or told.kind != HANG or told.details.get("invocation_id") != happening.invocation_id:
        yield _living(happening, HANG, since_usec=happening.at_usec)


def _answering(happening: Happening, past: Past) -> Iterator[Message]:
    told = _last_told(past)
    if told is None or told.kind != HANG:
        return
    if told.fresh:
        yield replace(told, state=SUPERSEDED)
    else:
        yield replace(_living(happening, ANSWERING, since_usec=told.since_usec), down=False)


def _planned(gathered: Message) -> int:
    planned: int = gathered.details.get(PLANNED, gathered.due_usec)
    return planned


def _gathering(past: Past) -> list[Message]:
    return [message for message in past.messages if message.kind == FOLDED and message.fresh]


def _last_told(past: Past) -> Message | None:
    """The last one that the channel was told, or will be before anything else."""
    gathering = _gathering(past)
    return next((one for one in past.messages if one.state != SUPERSEDED and one not in gathering), None)


def _while_down(past: Past) -> list[Message]:
    """What was told since the server was last told to be up."""
    gathering = _gathering(past)
    found: list[Message] = []
    for message in past.messages:
        if message.state == SUPERSEDED or message in gathering or message.kind == START_LIMIT:
            continue
        if not message.down:
            break
        found.append(message)
    return found


def _message(happening: Happening, kind: str, *, since_usec: int) -> Message:
    return Message(
        kind=kind,
        due_usec=happening.now_usec,
        about=happening.invocation_id,
        revision=happening.revision,
        fingerprint=happening.fingerprint,
        since_usec=since_usec,
        until_usec=happening.at_usec,
        details=_details(happening),
    )


def _living(happening: Happening, kind: str, *, since_usec: int) -> Message:
    return Message(
        kind=kind,
        due_usec=happening.now_usec,
        since_usec=since_usec,
        until_usec=happening.at_usec,
        details={**happening.details, "invocation_id": happening.invocation_id},
    )


def _details(happening: Happening) -> dict[str, str]:
    """The verdict as it was when this was told: what a receiver must be able to take back later."""
    return {"cause": happening.cause, "family": happening.family}
