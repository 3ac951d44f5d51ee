"""The loop: a signal to a watched process → who sent it → the journal. Wiring, and what to do in a flood."""

import select
import time
from collections import OrderedDict
from collections.abc import Callable

from forensics.sigtrace import records
from forensics.sigtrace.instance import TraceInstance
from forensics.sigtrace.pipe import Executed, Lost, Signal
from forensics.sigtrace.process import Process, look, process_of
from forensics.sigtrace.watched import Watched

REFRESH_SECONDS = 1.0
FLOOD_PER_SECOND = 2_000
"""More signals than this on the whole machine, and the kernel lets only those to the known processes through."""
CALM_SECONDS = 30.0
"""So long after a flood the youngest processes are watched again."""
RECORDS_PER_SECOND = 200
"""A tree of server processes has fewer; journald itself would begin to drop at 333."""

_REMEMBERED = 64
"""Programs that may send a signal, and runs that were announced."""


class Tracer:
    """`send` writes one record into the journal, `clock` is CLOCK_MONOTONIC in seconds."""

    def __init__(
        self,
        instance: TraceInstance,
        watched: Watched,
        send: Callable[[records.Fields], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._watched = watched
        self._send = send
        self._clock = clock
        self._since_usec = int(clock() * 1e6)
        self._announced: dict[tuple[str, str], None] = {}
        self._second = _Second()
        self._narrow_until: float | None = None
        self._next_refresh = 0.0
        self._executed: OrderedDict[int, Process] = OrderedDict()
        watched.refresh()

    def run(self) -> None:
        """For ever; a signal handler's exception ends it."""
        poll = select.poll()
        poll.register(self._instance.fileno(), select.POLLIN)
        while True:
            poll.poll(max(0.0, self._next_refresh - self._clock()) * 1000)
            self.step()

    def step(self) -> None:
        """Take what the pipe has now; once a second look which processes there are."""
        for item in self._instance.read():
            if isinstance(item, Lost):
                self._second.lost += item.count or 1
                self._count(item.count or 1)
            elif isinstance(item, Executed):
                self._remember(item)
            else:
                self._take(item)
        now = self._clock()
        if now < self._next_refresh:
            return
        self._next_refresh = now + REFRESH_SECONDS
        self._watched.refresh()
        if self._narrow_until is not None and now >= self._narrow_until:
            self._narrow_until = None
            self._instance.watch_all()
            self._since_usec = int(now * 1e6)
        elif self._narrow_until is not None:
            self._instance.watch_only(self._watched.pids)
        self._second = self._next_second()
        self._announce()

    def stop(self) -> None:
        """To be called when tracing ends while servers may be alive."""
        self._interrupted("the tracer was stopped")

    def _take(self, sent: Signal) -> None:
        self._count()
        unit = self._watched.unit(sent.target_tid)
        if not unit:
            return
        if self._second.recorded >= RECORDS_PER_SECOND:
            self._second.dropped += 1
            return
        self._second.recorded += 1
        sender = self._sender(sent)
        sender_unit = self._watched.unit(sent.sender_tid) or self._watched.unit(sender.pid)
        # htop, for one, sends signals to threads; they are for the whole process all the same.
        known = sent.target_tid in self._watched.pids
        target = records.Target(
            pid=sent.target_tid if known else process_of(sent.target_tid),
            unit=unit,
            invocation_id=self._watched.invocation_id(unit),
        )
        self._send(records.signal_sent(sent, sender, sender_unit, target))

    def _remember(self, executed: Executed) -> None:
        self._count()
        self._executed[executed.pid] = look(executed.pid)
        if len(self._executed) > _REMEMBERED:
            self._executed.popitem(last=False)

    def _sender(self, sent: Signal) -> Process:
        """The sender as it is now, or as it was when it was executed."""
        sender = look(sent.sender_tid)
        if not sender.missing:
            return sender
        name, earlier = sender.comm or sent.sender_comm, self._executed.get(sent.sender_tid)
        return earlier if earlier is not None and name in ("", earlier.comm) else sender

    def _count(self, signals: int = 1) -> None:
        self._second.seen += signals
        if self._second.seen >= FLOOD_PER_SECOND and self._narrow_until is None:
            self._narrow()

    def _narrow(self) -> None:
        self._narrow_until = self._clock() + CALM_SECONDS
        self._instance.watch_only(self._watched.pids)
        self._interrupted(f"more than {FLOOD_PER_SECOND} signals in a second: only known processes are traced now")

    def _next_second(self) -> "_Second":
        if self._second.lost:
            self._interrupted(f"the kernel's buffer ran over: {self._second.lost} records are lost")
        if self._second.dropped:
            self._interrupted(f"{self._second.dropped} signals to watched processes were more than can be recorded")
        if self._second.seen >= FLOOD_PER_SECOND and self._narrow_until is not None:
            self._narrow_until = self._clock() + CALM_SECONDS
        return _Second()

    def _announce(self) -> None:
        """Each run once: the daemon has to know from when on silence means that there was no signal."""
        present = {(unit, self._watched.invocation_id(unit)) for unit in self._watched.units}
        for unit, invocation_id in sorted(present - self._announced.keys()):
            self._send(records.watching(unit, invocation_id, self._since_usec))
            self._announced[unit, invocation_id] = None
        for oldest in list(self._announced)[:-_REMEMBERED]:
            del self._announced[oldest]

    def _interrupted(self, reason: str) -> None:
        usec = int(self._clock() * 1e6)
        self._since_usec = usec
        self._send(records.interrupted(reason, usec))


class _Second:
    """Counts of the present second."""

    def __init__(self) -> None:
        self.seen = self.lost = self.recorded = self.dropped = 0
