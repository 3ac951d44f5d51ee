"""What a run decoded, in few numbers that grow line by line: throughput by concurrency, accept length, peaks. Pure.

SGLang prints a decode line every 40 steps (`--decode-log-interval`). A tally takes them in any number, is the same
whenever the same lines were taken, and is small enough to be saved every second.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CONCURRENCY = (("1", 1), ("2-4", 4), ("5-16", 16), ("17+", None))
"""The groups by running requests: name and largest number, None for no bound."""

_PER_OCTAVE = 32
"""Buckets between a throughput and its double: a median is right to 1.1 %."""
_LEAST = 0.01
_IDLE_BELOW = 0.1
"""SGLang reckons a line's throughput from the time of the line before: the first one after a pause has the pause in it.
A line with less than this share of the best at its concurrency is taken for one of those."""
_HUNDRED = 100
"""SGLang prints accept lengths and rates with two decimals: kept as whole hundredths, sums are exact."""


def concurrency(running_requests: int) -> str:
    """The group that so many running requests fall into."""
    return next(name for name, most in CONCURRENCY if most is None or running_requests <= most)


@dataclass(slots=True, kw_only=True)
class Throughput:
    """Generation throughputs in tokens a second, as printed: `best`, and how many lines fell into which bucket."""

    lines: int = 0
    best: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, tokens_per_second: float) -> None:
        self.lines += 1
        self.best = max(self.best, tokens_per_second)
        bucket = _bucket(tokens_per_second)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    @property
    def median(self) -> float:
        """Of the lines without a pause: the middle of the bucket that holds the median; never above the best."""
        busy = {bucket: count for bucket, count in self.buckets.items() if bucket >= _bucket(self.best * _IDLE_BELOW)}
        seen, lines = 0, sum(busy.values())
        for bucket in sorted(busy):
            seen += busy[bucket]
            if 2 * seen >= lines:
                return min(self.best, round(2 ** ((bucket + 0.5) / _PER_OCTAVE), 2))
        return 0.0


def _bucket(tokens_per_second: float) -> int:
    return math.floor(math.log2(max(tokens_per_second, _LEAST)) * _PER_OCTAVE)


@dataclass(slots=True, kw_only=True)
class Decoding:
    """The tally of a run's decode lines.

    `weight` is the sum of running requests over lines with an accept length, so that a mean by it is one over
    sequences. `tokens_a_step` is the sum of running requests times accept length: times the log interval it is about
    how many tokens were generated.
    """

    lines: int = 0
    throughput: dict[str, Throughput] = field(default_factory=dict)
    tokens_a_step: float = 0.0
    speculative_lines: int = 0
    weight: int = 0
    accepted_hundredths: int = 0
    accept_length_least: float | None = None
    accept_length_most: float | None = None
    rate_weight: int = 0
    rate_hundredths: int = 0
    accept_rate_least: float | None = None
    peak_running_requests: int = 0
    peak_queued_requests: int = 0
    peak_token_usage: float | None = None

    def add(self, figures: Mapping[str, str]) -> None:
        """Take one decode line: its figures as printed, keys without `#`. What is no number is passed over."""
        running = _whole(figures.get("running-req"))
        if running is None or running < 1:
            return
        self.lines += 1
        speed = _number(figures.get("gen throughput (token/s)"))
        if speed is not None:
            self.throughput.setdefault(concurrency(running), Throughput()).add(speed)
        self._add_acceptance(running, figures)
        self.peak_running_requests = max(self.peak_running_requests, running)
        self.peak_queued_requests = max(self.peak_queued_requests, _whole(figures.get("queue-req")) or 0)
        for name in ("token usage", "full token usage", "swa token usage", "mamba usage"):
            usage = _number(figures.get(name))
            if usage is not None:
                self.peak_token_usage = max(self.peak_token_usage or 0.0, usage)

    def _add_acceptance(self, running: int, figures: Mapping[str, str]) -> None:
        length, rate = _number(figures.get("accept len")), _number(figures.get("accept rate"))
        self.tokens_a_step += running * (length if length is not None else 1.0)
        if length is not None:
            self.speculative_lines += 1
            self.weight += running
            self.accepted_hundredths += running * round(length * _HUNDRED)
            least, most = self.accept_length_least, self.accept_length_most
            self.accept_length_least = length if least is None else min(least, length)
            self.accept_length_most = length if most is None else max(most, length)
        if rate is not None:
            self.rate_weight += running
            self.rate_hundredths += running * round(rate * _HUNDRED)
            least = self.accept_rate_least
            self.accept_rate_least = rate if least is None else min(least, rate)

    @property
    def accept_length(self) -> float | None:
        """The mean over sequences; None without speculation."""
        return round(self.accepted_hundredths / self.weight / _HUNDRED, 3) if self.weight else None

    @property
    def accept_rate(self) -> float | None:
        return round(self.rate_hundredths / self.rate_weight / _HUNDRED, 3) if self.rate_weight else None


def dump(decoding: Decoding) -> dict[str, Any]:
    """As JSON can have it."""
    plain = {name: getattr(decoding, name) for name in Decoding.__dataclass_fields__ if name != "throughput"}
    groups = {
        name: {
            "lines": group.lines,
            "best": group.best,
            "buckets": {str(bucket): count for bucket, count in group.buckets.items()},
        }
        for name, group in decoding.throughput.items()
    }
    return {**plain, "throughput": groups}


def load(data: Mapping[str, Any]) -> Decoding:
    """What `dump` wrote."""
    groups = {
        name: Throughput(
            lines=group["lines"],
            best=group["best"],
            buckets={int(bucket): count for bucket, count in group["buckets"].items()},
        )
        for name, group in data.get("throughput", {}).items()
    }
    return Decoding(**{**data, "throughput": groups})


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
