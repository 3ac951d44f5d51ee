"""Who is told of what. A route is an exception: where none fits, everybody is told of what should wake somebody."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from forensics.alerts.decide import Manner, decide
from forensics.public import server_name
from forensics.store.telling import AMENDED, CRASH, HANG, START_LIMIT, Happening, Message, Past

ROUTED = (CRASH, START_LIMIT, HANG)
"""What is routed. All else goes to those who were told of these."""

NO_STRENGTH = "none"
"""How a route names the strength of a verdict that nothing decides."""

QUIET = frozenset({"stop-timeout"})
"""Causes that are news and no alarm: the server was being stopped anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Fits when each of its conditions does; an empty one always does. `servers` are globs of names, or of units. `to`
    are names of channels, None means all of them."""

    families: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()
    servers: tuple[str, ...] = ()
    strengths: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    to: frozenset[str] | None = None

    def fits(self, happening: Happening) -> bool:
        names = (server_name(happening.unit), happening.unit)
        return (
            (not self.families or happening.family in self.families)
            and (not self.causes or happening.cause in self.causes)
            and (not self.servers or any(fnmatchcase(name, glob) for name in names for glob in self.servers))
            and (not self.strengths or (happening.strength or NO_STRENGTH) in self.strengths)
            # A verdict that has changed is news like the first one to those who were not told that.
            and (not self.kinds or (CRASH if happening.kind == AMENDED else happening.kind) in self.kinds)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressee:
    """One channel: what it wants to be told, and in which manner; `everything` is for the journal, a record."""

    name: str
    type: str
    manner: Manner
    routes: tuple[Route, ...] = ()
    everything: bool = False

    def wants(self, happening: Happening) -> bool:
        """The first route that fits decides."""
        if self.everything:
            return True
        for route in self.routes:
            if route.fits(happening):
                return route.to is None or self.name in route.to
        return happening.cause not in QUIET

    def decide(self, happening: Happening, past: Past) -> Iterable[Message]:
        return decide(happening, past, self.manner, wanted=self.wants(happening))
