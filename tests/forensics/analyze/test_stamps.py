"""Times at the beginning of a line."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forensics.analyze import stamps

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


def moment(text: str) -> datetime:
    found = stamps.parse(text + " x", NOW)
    assert found is not None, text
    assert found[0].realtime_usec is not None
    return datetime.fromtimestamp(found[0].realtime_usec / 1e6, UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-17T08:03:20.5Z", "2026-05-17T08:03:20.500000+00:00"),
        ("2026-05-17T08:03:20,250000+02:00", "2026-05-17T06:03:20.250000+00:00"),
        ("2026-05-17 08:03:20", "2026-05-17T08:03:20+00:00"),
        ("Sun 2026-05-17 08:03:20 CEST", "2026-05-17T06:03:20+00:00"),
        ("[Sun May 17 08:03:20 2026]", "2026-05-17T08:03:20+00:00"),
        ("[dim. 17 mai 08:03:20 2026]", "2026-05-17T08:03:20+00:00"),
        ("1779005000.250000", "2026-05-17T08:03:20.250000+00:00"),
    ],
)
def test_what_says_its_year(text: str, expected: str) -> None:
    assert moment(text).isoformat() == expected


@pytest.mark.parametrize(
    ("text", "month", "day"),
    [
        ("Oct 19 22:21:15", 10, 19), ("Okt 19 22:21:15", 10, 19), ("oct. 19 22:21:15", 10, 19),
        ("10月 19 22:21:15", 10, 19), ("10월 19 22:21:15", 10, 19), ("окт 19 22:21:15", 10, 19),
        ("juin 12 22:21:15", 6, 12), ("juil. 12 22:21:15", 7, 12), ("févr. 3 22:21:15", 2, 3),
        ("Dez 24 22:21:15", 12, 24), ("mag 2 22:21:15", 5, 2), ("ago 7 22:21:15", 8, 7), ("sty 7 22:21:15", 1, 7),
        ("gru 7 22:21:15", 12, 7), ("Mär 7 22:21:15", 3, 7), ("8月 19 22:20:26", 8, 19), ("19 Okt 22:21:15", 10, 19),
    ],
)  # fmt: skip
def test_months_in_the_languages_of_the_world(text: str, month: int, day: int) -> None:
    assert (moment(text).month, moment(text).day) == (month, day)


def test_the_year_that_is_not_there_is_the_last_that_fits() -> None:
    assert moment("Oct 19 22:21:15").year == 2026
    assert moment("Dec 24 22:21:15").year == 2025
    assert moment("Feb 29 22:21:15") == datetime(2024, 2, 29, 22, 21, 15, tzinfo=UTC)


def test_a_zone_that_is_assumed_says_so() -> None:
    for text, naive in (("2026-05-17T08:03:20Z x", False), ("2026-05-17T08:03:20 x", True)):
        found = stamps.parse(text, NOW)
        assert found is not None
        assert found[0].naive is naive


def test_the_kernels_clock() -> None:
    found = stamps.parse("[  912.104411] usb 1-1", NOW)
    assert found is not None
    assert (found[0].monotonic_usec, found[0].realtime_usec) == (912_104_411, None)


@pytest.mark.parametrize("text", ["", "hello", "[TP0] x", "2026-13-40 08:03:20 x", "Foo 19 22:21:15 x", "2026-05-17 x",
                                  "Oct 32 22:21:15 x", "Oct 19 27:21:15 x", "[99999999999999.1] x"])  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    assert stamps.parse(text, NOW) is None


@given(st.text(max_size=60))
@example("2026-02-30T00:00:00Z ")
@example("٣ Oct 19 22:21:15 ")
@example("0000-01-01 00:00:00 ")
@example("9999-12-31 23:59:60 ")
def test_no_text_upsets_it(text: str) -> None:
    found = stamps.parse(text, NOW)
    assert found is None or 0 <= found[1] <= len(text)
    if found is not None and found[0].realtime_usec is not None:
        stamps.when(found[0].realtime_usec)
