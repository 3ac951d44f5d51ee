"""Carries what stands in the outbox to the sinks: one thread a sink, woken by the daemon, patient with dead ones."""

import logging
import random
import threading
from collections.abc import Sequence

from forensics.alerts.sink import Refused, Sink
from forensics.errors import InquestError
from forensics.redact import redact
from forensics.store import Outbox
from forensics.store.rows import now_usec

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 900.0
STORE_RETRY_SECONDS = 5.0
PATIENCE_TRIES = 5
"""A message that was refused so often may be one that a receiver can never take."""


def back_off_seconds(attempts: int) -> float:
    """How long to wait after so many failed tries: doubling from one second, with jitter so that the sinks of many
    machines do not all come back in the same moment."""
    return min(2.0 ** min(attempts, 30), LONGEST_WAIT_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret


class Courier:
    """Delivers until closed. What was not delivered then waits in the store for the next start."""

    def __init__(self, outbox: Outbox, sinks: Sequence[Sink]) -> None:
        self._outbox = outbox
        self._closing = threading.Event()
        self._bells = [threading.Event() for _ in sinks]
        given_up = outbox.abandon_others([sink.name for sink in sinks])
        if given_up:
            log.warning("gave up %d alerts for sinks that are no longer configured", given_up)
        self._threads = [
            # Daemon threads: a receiver that hangs must not hold up the end of the process.
            threading.Thread(target=self._work, args=(sink, bell), name=f"alerts-{sink.name}", daemon=True)
            for sink, bell in zip(sinks, self._bells, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """There may be something new to send. Returns at once."""
        for bell in self._bells:
            bell.set()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Ends the threads; a try under way gets this long."""
        self._closing.set()
        self.wake()
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _work(self, sink: Sink, bell: threading.Event) -> None:
        while not self._closing.is_set():
            bell.clear()
            try:
                wait_seconds = self._deliver_what_is_due(sink)
            except Exception:
                # The store cannot be read or written just now; nothing is lost by waiting.
                log.exception("alerts to %s: the outbox failed", sink.name)
                wait_seconds = STORE_RETRY_SECONDS
            bell.wait(wait_seconds)

    def _deliver_what_is_due(self, sink: Sink) -> float | None:
        """Seconds until the next try is due, None when nothing waits."""
        while not self._closing.is_set() and (delivery := self._outbox.take(sink.name, now_usec())) is not None:
            try:
                sink.send(delivery)
            except Exception as error:  # a sink raises when the message has not arrived, with whatever it has
                wait_seconds = back_off_seconds(delivery.attempts - 1)
                said = redact(error.message if isinstance(error, InquestError) else f"{type(error).__name__}: {error}")
                log.warning(
                    "alert %s to %s failed, next try in %.1f s: %s", delivery.key, sink.name, wait_seconds, said
                )
                next_try_usec = now_usec() + int(wait_seconds * 1e6)
                refused = isinstance(error, Refused) and delivery.attempts >= PATIENCE_TRIES
                self._outbox.failed(delivery, said, next_try_usec, holds_up=not refused)
            else:
                self._outbox.delivered(delivery, now_usec())
        next_usec = self._outbox.next_try_usec(sink.name, now_usec())
        return None if next_usec is None else max(0.0, (next_usec - now_usec()) / 1e6)
