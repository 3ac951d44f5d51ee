"""What has happened and what people were told of it, as values: what the decision on the next message is made from.

The store asks each channel for its decision inside the transaction that stores what happened, and writes it down.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

CRASH, AMENDED, FOLDED = "crash", "amended", "folded"
START_LIMIT, RECOVERED = "start-limit", "recovered"
HANG, ANSWERING = "hang", "answering"
READY = "ready"
"""Not a message: a run of a server has become ready."""

KINDS = (CRASH, AMENDED, FOLDED, START_LIMIT, RECOVERED, HANG, ANSWERING)
"""The kinds of messages."""

LOOKED_BACK = 200
"""So many messages to one channel on one server are looked at to decide on the next."""

WAITING, DELIVERED, SUPERSEDED, ABANDONED = "waiting", "delivered", "superseded", "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What is being stored. `kind` is `crash`, `amended`, `start-limit`, `ready`, `hang` or `answering`; `at_usec` when
    it happened, `now_usec` when it is stored, both since the epoch. What the verdict says is empty for a living run,
    and `details` are of one (`hang`, `answering`)."""

    kind: str
    unit: str
    invocation_id: str
    at_usec: int
    now_usec: int
    revision: int = 0
    is_crash: bool = True
    cause: str = ""
    family: str = ""
    strength: str | None = None
    fingerprint: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to one channel: a row of the outbox. `id` is 0 for one that is not there yet.

    `about` is the invocation id of the death that it tells of, None for a living run. It is told from `due_usec` on.
    `count` deaths are told by it, the last at `until_usec`, since what was told before at `since_usec`; `back_usec` is
    when the server was ready again after them, 0 while it is not. `tried` once it may have arrived.
    """

    kind: str
    due_usec: int
    id: int = 0
    state: str = WAITING
    about: str | None = None
    revision: int = 0
    fingerprint: str = ""
    count: int = 1
    since_usec: int = 0
    until_usec: int = 0
    back_usec: int = 0
    down: bool = True
    tried: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def fresh(self) -> bool:
        """Whether it can still be changed: nobody can have seen it."""
        return self.state == WAITING and not self.tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What one channel was told of one server, newest first, and when that server last ended while it served; 0 if it
    never did."""

    messages: tuple[Message, ...] = ()
    served_until_usec: int = 0


class Channel(Protocol):
    """Somebody who may be told: decides what, and knows nothing of how it is sent."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str:
        """`journal`, `webhook` …"""

    def decide(self, happening: Happening, past: Past) -> Iterable[Message]:
        """Messages to be written: new ones, and those of the past that change. Pure."""
