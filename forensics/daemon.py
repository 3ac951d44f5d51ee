"""The loop: journal → tracker → verdict → store → alerts. Wiring only; what it decides is when to judge.

A finding that stands by itself is told at once. One that rests on silence (`awaits`) is held until late records had
their time (`settle_seconds` after the death), since the kernel's can arrive a second after the death they caused.
"""

import logging
import math
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from systemd import daemon as sd_daemon
from systemd import journal

from forensics.alerts import Courier, addressees, sinks
from forensics.answering import untold
from forensics.api import Access, Health, SourceHealth, create_app, serve
from forensics.belonging import LINGER_USEC
from forensics.classify import classify
from forensics.coverage import RECORDED, read_core_pattern, recorded_gaps
from forensics.entry import Entry
from forensics.errors import InquestError
from forensics.events import Gap
from forensics.model import Crash, RunRecord
from forensics.rules import RULES
from forensics.runs.notice import notice
from forensics.sampler import Sampler
from forensics.settings import Api, Settings
from forensics.sources.excerpt import excerpt
from forensics.sources.journal import JournalReader, Lines
from forensics.store import Store
from forensics.store.store import FILE_NAME
from forensics.tracker import Tracker

log = logging.getLogger("inquestd")

_CHECKPOINT_SECONDS = 1.0
_HOUSEKEEPING_SECONDS = 60.0
_MANY_DUE = 32
"""More runs than this that wait for their verdict mean that history is being read."""
_READING_USEC = 120_000_000
_HALF_READ_USEC = 1_000_000
"""A block of lines that got no further line for so long is complete, or will never be."""


def _monotonic_usec() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


class Daemon:
    """One daemon: its sources, its runs, its store. `run` returns when `stop` was called."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started_at = datetime.now(UTC)
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        self._store = Store(settings.state_dir / FILE_NAME, addressees(settings))
        checkpoint = self._store.load_checkpoint()
        self._first_start = checkpoint is None
        self._installed_usec = int(self._started_at.timestamp() * 1e6)
        lookback = settings.lookback_seconds
        since = self._installed_usec - int(lookback * 1e6) if math.isfinite(lookback) else None
        self._tracker = Tracker(settings.units, checkpoint.open_runs if checkpoint else ())
        self._reader = JournalReader(
            settings.units,
            cursor=checkpoint.cursor if checkpoint else None,
            since_realtime_usec=None if checkpoint else since,
            processes=self._tracker.processes,
        )
        self._sampler = Sampler(settings.units, settings.sample_interval_seconds)
        self._courier = Courier(self._store.outbox, sinks(settings))
        self._store.news.listen(self._courier.wake)
        self._read_to_usec = checkpoint.realtime_usec if checkpoint else 0
        self._read_boot_id, self._read_monotonic_usec = "", 0
        self._due: dict[str, int] = {
            record.invocation_id: record.ended_usec
            for record in self._tracker.records()
            if record.ended_usec is not None
        }
        self._access = access_of(settings.api)
        self._changed = False
        self._stopping = False
        self._open_runs = 0
        self._coverage: tuple[Gap, ...] = ()
        self._look_at_coverage()

    def close(self) -> None:
        self._sampler.close()
        self._courier.close()
        self._reader.close()
        self._store.close()

    def stop(self, signum: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        self._stopping = True

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self) -> None:
        app = create_app(
            self._store,
            self.health,
            access=self._access,
            causes=[(rule.cause, rule.family) for rule in RULES],
            journal=excerpt,
        )
        with closing(serve(app, self._settings.api.host, self._settings.api.port, self._settings.api.socket)) as api:
            log.info("watching %s; the API is on port %d", ", ".join(self._settings.units), api.port)
            self._drain()
            sd_daemon.notify("READY=1\nSTATUS=Reading the journal")
            next_checkpoint = next_housekeeping = time.monotonic()
            while not self._stopping:
                self._reader.wait(self._seconds_to_wait())
                self._drain()
                open_runs = list(self._tracker.open_runs())
                self._open_runs = len(open_runs)
                self._sampler.tick(open_runs)
                self._tell_remarks(open_runs)
                now = time.monotonic()
                if now >= next_checkpoint:
                    next_checkpoint = now + _CHECKPOINT_SECONDS
                    self._tell_silence(open_runs)
                    self._checkpoint()
                    sd_daemon.notify("WATCHDOG=1")
                if now >= next_housekeeping:
                    next_housekeeping = now + _HOUSEKEEPING_SECONDS
                    self._keep_house()
            sd_daemon.notify("STOPPING=1")
            self._checkpoint()

    def _drain(self) -> None:
        """Read all that is there, then judge what came to rest in it."""
        while True:
            empty = True
            for item in self._reader.read():
                empty = False
                self._changed = True
                if isinstance(item, Entry | Lines):
                    realtime = item.realtime_usec if isinstance(item, Entry) else item.last_realtime_usec
                    self._read_to_usec = max(self._read_to_usec, realtime)
                    self._read_boot_id = item.boot_id
                    self._read_monotonic_usec = (
                        item.monotonic_usec if isinstance(item, Entry) else item.last_monotonic_usec
                    )
                for invocation_id in self._tracker.feed(item):
                    self._due.setdefault(invocation_id, _monotonic_usec())
            if empty or self._stopping:
                break
            if len(self._due) > _MANY_DUE:
                self._judge_history()
            # The first start reads the whole journal before it is ready.
            sd_daemon.notify(f"WATCHDOG=1\nEXTEND_TIMEOUT_USEC={_READING_USEC}")
        self._tracker.flush_older(_monotonic_usec() - _HALF_READ_USEC)
        self._judge_due()

    def _seconds_to_wait(self) -> float:
        """Until the next sample, or until a held verdict has waited long enough."""
        wait = self._sampler.seconds_to_next()
        if self._due:
            first = min(self._due.values()) + int(self._settings.settle_seconds * 1e6)
            wait = min(wait, max(0.0, (first - _monotonic_usec()) / 1e6))
        return min(wait, _CHECKPOINT_SECONDS)

    # --- judging ------------------------------------------------------------------------------------------

    def _judge_due(self) -> None:
        settle_usec = int(self._settings.settle_seconds * 1e6)
        for invocation_id, since_usec in list(self._due.items()):
            try:
                told = self._judge(invocation_id, waited=_monotonic_usec() - since_usec >= settle_usec)
            except InquestError:
                # The store cannot be written just now. The run stays due, and in the checkpoint.
                log.exception("run %s could not be stored", invocation_id)
                return
            if told:
                self._due.pop(invocation_id, None)

    def _judge_history(self) -> None:
        """In the midst of a long journal: judge what ended long before the place that was read to, and let it go."""
        for record in self._tracker.records():
            passed = record.ended_usec is not None and (
                record.boot_id != self._read_boot_id or record.ended_usec + LINGER_USEC < self._read_monotonic_usec
            )
            if passed and record.invocation_id in self._due:
                try:
                    self._judge(record.invocation_id, waited=True)
                except InquestError:
                    log.exception("run %s could not be stored", record.invocation_id)
                    return
                self._due.pop(record.invocation_id)
        self._tracker.forget(self._read_monotonic_usec, self._read_boot_id)

    def _tell_remarks(self, open_runs: list[RunRecord]) -> None:
        """Useless speculation, or one too good to be true, once a run."""
        for record in open_runs:
            if (fields := notice(record)) is not None:
                record.remarked = self._changed = True
                journal.send(fields.pop("MESSAGE"), **fields)

    def _tell_silence(self, open_runs: list[RunRecord]) -> None:
        """A server that runs and does not answer, and one that answers again, once each."""
        for record in open_runs:
            for heard in untold(record):
                try:
                    self._store.note(heard.kind, record.unit, record.invocation_id, heard.at_usec, heard.details)
                except InquestError:
                    log.exception("what the heartbeat of %s said could not be stored", record.unit)
                    return
                record.silences_told += 1
                self._changed = True
                self._courier.wake()

    def _judge(self, invocation_id: str, *, waited: bool) -> bool:
        """Judge one run; False when the verdict is held for late evidence."""
        sampled, sample_gaps = self._sampler.take(invocation_id)
        self._tracker.add(invocation_id, sampled, sample_gaps)
        run, timeline = self._tracker.judge_input(invocation_id, RECORDED, self._coverage)
        verdict = classify(run, timeline)
        late = run.boot_id != self._boot_id
        if not verdict.settled and not waited and not late:
            return False
        verdict = replace(verdict, awaits=())
        backfilled = self._first_start and int(run.died_at.timestamp() * 1e6) < self._installed_usec
        saved = self._store.save(Crash(run=run, timeline=timeline, verdict=verdict), alert=not backfilled)
        if saved is not None:
            log.info("%s: %s (%s) %s", run.unit, verdict.cause, verdict.strength or "open", verdict.summary)
        return True

    # --- housekeeping -------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Remember how far the journal was read, with the runs that are open there. Not in the middle of a block:
        its first lines would be lost to the next daemon."""
        if not self._changed or not self._tracker.idle:
            return
        try:
            self._store.checkpoint(self._reader.cursor, self._read_to_usec, self._tracker.records())
            self._changed = False
        except InquestError:
            log.exception("no checkpoint could be written")

    def _keep_house(self) -> None:
        self._look_at_coverage()
        self._tracker.forget(_monotonic_usec(), self._boot_id)
        retention = self._settings.retention
        with suppress(InquestError):
            self._store.prune(retention.max_crashes, retention.max_age_days)

    def _look_at_coverage(self) -> None:
        self._coverage = recorded_gaps(self._reader.readable(), self._reader.kernel_readable(), read_core_pattern())

    def health(self) -> Health:
        """Called from the API's thread: reads only what is replaced whole."""
        blind = {gap.source: gap.reason for gap in (*self._coverage, *self._sampler.blind())}
        names = sorted(RECORDED | self._sampler.sources | blind.keys())
        return Health(
            version=version("inquestd"),
            started_at=self._started_at,
            units=self._settings.units,
            read_to=datetime.fromtimestamp(self._read_to_usec / 1e6, UTC) if self._read_to_usec else None,
            open_runs=self._open_runs,
            sources=tuple(
                SourceHealth(name=name, state="blind" if name in blind else "reading", detail=blind.get(name, ""))
                for name in names
            ),
        )


def access_of(api: Api) -> Access:
    """Who may reach the API, as the settings say. SettingsError when the token cannot be read."""
    return Access(
        names=frozenset(name.lower() for name in api.hosts),
        open=api.beyond_loopback,
        token=api.read_token(),
        origins=frozenset(api.cors_origins),
    )


@contextmanager
def _signals(daemon: Daemon) -> Iterator[None]:
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, daemon.stop)
    yield


def main(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT. Exit status 0; what cannot start raises InquestError."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(name)s: %(message)s")
    with closing(Daemon(settings)) as daemon, _signals(daemon):
        daemon.run()
    return 0
