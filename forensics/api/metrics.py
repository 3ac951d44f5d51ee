"""`GET /metrics`, in the text format of Prometheus or OpenMetrics, as the scraper asks.

Read from the store at each scrape; the store's counters only rise, over a restart of the daemon too. Every server has
every cause at 0 from the start, since `increase()` does not see a first step. No fingerprint, id or text is a label.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from forensics.api.shapes import Health
from forensics.public import server_name
from forensics.store import Store
from forensics.store.news import Tally
from forensics.store.rows import now_usec

VERDICT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
UNKNOWN = ("unknown", "unknown")
# SGLang's figures of a decode line, which it prints without a unit of Prometheus's.
_DECODE = {
    "gen throughput (token/s)": (
        "inquest_server_generation_tokens_per_second",
        "Generation throughput that the living run printed last.",
    ),
    "accept len": (
        "inquest_server_accept_length_tokens",
        "Tokens a verification step that the living run printed last.",
    ),
}


class Metrics:
    """`causes` are the causes that a verdict can have, each with its family."""

    def __init__(self, store: Store, health: Callable[[], Health], causes: Iterable[tuple[str, str]]) -> None:
        self._store = store
        self._health = health
        self._causes = (*causes, UNKNOWN)
        self._registry = CollectorRegistry(auto_describe=False)
        self._verdicts = Histogram(
            "inquest_verdict_seconds",
            "Time from a death to its first verdict, since the daemon started.",
            buckets=VERDICT_SECONDS,
            registry=self._registry,
        )
        store.news.time_verdicts(self._verdicts.observe)
        self._registry.register(self)

    def text(self, accept: str) -> tuple[bytes, str]:
        """The body and its media type."""
        encoder, media_type = choose_encoder(accept)
        return encoder(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        health, tallies = self._health(), self._store.news.tallies()
        yield from self._of_servers(tallies)
        yield from _of_sources(health, tallies)
        yield from self._of_alerts(tallies)
        build = GaugeMetricFamily("inquest_build_info", "The daemon's version.", labels=("version",))
        build.add_metric((health.version,), 1)
        yield build
        started = GaugeMetricFamily("inquest_start_time_seconds", "When the daemon started, since the epoch.")
        started.add_metric((), health.started_at.timestamp())
        yield started

    def _of_servers(self, tallies: list[Tally]) -> Iterator[Metric]:
        servers = self._store.servers()
        names = [server["server"] for server in servers]
        counts = {(server, cause, family): 0 for server in names for cause, family in self._causes}
        counts |= {(server_name(t.unit), t.label, t.family): t.count for t in tallies if t.name == "crashes"}
        crashes = CounterMetricFamily(
            "inquest_crashes",
            "Crashes, by the cause of their first verdict.",
            labels=("server", "cause", "family"),
        )
        for labels, count in counts.items():
            crashes.add_metric(labels, count)
        yield crashes
        for name, what, text in (
            ("restarts", "inquest_restarts", "Restarts that systemd scheduled after a run had ended."),
            ("start_limits", "inquest_start_limits", "Times that systemd gave the server up at its start limit."),
            ("amended", "inquest_verdicts_amended", "Verdicts that later evidence changed."),
        ):
            of_each = dict.fromkeys(names, 0)
            of_each |= {server_name(t.unit): t.count for t in tallies if t.name == name}
            counter = CounterMetricFamily(what, text, labels=("server",))
            for server, count in of_each.items():
                counter.add_metric((server,), count)
            yield counter
        up = GaugeMetricFamily("inquest_server_up", "Whether a run of the server lives.", labels=("server",))
        hangs = GaugeMetricFamily(
            "inquest_server_hangs", "Whether a run of the server lives and does not answer.", labels=("server",)
        )
        last = GaugeMetricFamily(
            "inquest_server_last_crash_timestamp_seconds",
            "When the server crashed last, since the epoch.",
            labels=("server",),
        )
        for one in servers:
            running = one["running"]
            up.add_metric((one["server"],), running is not None)
            hangs.add_metric((one["server"],), running is not None and running["not_answering_since"] is not None)
            if one["last_crash"] is not None:
                last.add_metric((one["server"],), datetime.fromisoformat(one["last_crash"]["died_at"]).timestamp())
        yield up
        yield hangs
        yield last
        yield from self._of_decoding()

    def _of_decoding(self) -> Iterator[Metric]:
        figures = self._store.news.last_decodes()
        for figure, (name, text) in _DECODE.items():
            gauge = GaugeMetricFamily(name, text, labels=("server",))
            for unit, said in figures.items():
                if (value := _number(said.get(figure))) is not None:
                    gauge.add_metric((server_name(unit),), value)
            yield gauge

    def _of_alerts(self, tallies: list[Tally]) -> Iterator[Metric]:
        sinks = self._store.outbox.states()
        owed = self._store.outbox.owed(now_usec())
        waiting = GaugeMetricFamily(
            "inquest_alerts_waiting", "Alerts whose time has come and that a sink did not take yet.", labels=("sink",)
        )
        for sink in sinks:
            waiting.add_metric((sink,), owed.get(sink, 0))
        yield waiting
        tries = {(sink, outcome): 0 for sink in sinks for outcome in ("delivered", "failed")}
        tries |= {(t.unit, t.label): t.count for t in tallies if t.name == "deliveries"}
        deliveries = CounterMetricFamily(
            "inquest_alert_deliveries", "Tries to deliver an alert.", labels=("sink", "outcome")
        )
        for labels, number in tries.items():
            deliveries.add_metric(labels, number)
        yield deliveries


def _of_sources(health: Health, tallies: list[Tally]) -> Iterator[Metric]:
    up = GaugeMetricFamily("inquest_source_up", "Whether a source of evidence can be read.", labels=("source",))
    for source in health.sources:
        up.add_metric((source.name,), source.state == "reading")
    yield up
    counts = {source.name: 0 for source in health.sources}
    counts |= {t.label: t.count for t in tallies if t.name == "gaps"}
    gaps = CounterMetricFamily(
        "inquest_source_gaps", "Crashes for which a source could not be read throughout.", labels=("source",)
    )
    for name, count in counts.items():
        gaps.add_metric((name,), count)
    yield gaps
    read_to = GaugeMetricFamily(
        "inquest_journal_read_timestamp_seconds", "The time of the last journal entry that was read, since the epoch."
    )
    if health.read_to is not None:
        read_to.add_metric((), health.read_to.timestamp())
    yield read_to
    runs = GaugeMetricFamily("inquest_open_runs", "Runs that live.")
    runs.add_metric((), health.open_runs)
    yield runs


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
