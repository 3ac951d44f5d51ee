"""A client that follows `next` while crashes arrive: what was there when it began, it sees once."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.api import create_app
from forensics.store import Store
from tests.forensics.factories import HEALTH, crash

UNITS = ("sglang-demo.service", "sglang-other.service")
DEATHS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(UNITS)), max_size=12)
"""Seconds, few enough that many die in the same microsecond, and the unit."""


@settings(max_examples=40)  # each is a store of its own
@given(
    there=DEATHS,
    arriving=st.lists(DEATHS, max_size=6),
    limit=st.integers(1, 5),
    path=st.sampled_from(["/crashes", "/crashes?server=demo", "/runs", "/runs?server=other"]),
)
def test_pages_neither_skip_nor_repeat_whatever_arrives_meanwhile(
    there: list[tuple[int, str]], arriving: list[list[tuple[int, str]]], limit: int, path: str
) -> None:
    numbers = iter(range(1, 1000))
    with tempfile.TemporaryDirectory() as folder, closing(Store(Path(folder) / "inquest.sqlite")) as store:
        client = TestClient(create_app(store, lambda: HEALTH), base_url="http://localhost")

        def die(deaths: list[tuple[int, str]]) -> None:
            for seconds, unit in deaths:
                store.save(crash(next(numbers), unit=unit, usec=60_000_000 + seconds * 1_000_000))

        def pages() -> Iterator[list[str]]:
            at = f"{path}{'&' if '?' in path else '?'}limit={limit}"
            while True:
                answer = client.get(at)
                yield [one["id"] for one in answer.json()[urlsplit(path).path[1:]]]
                if "next" not in answer.links:
                    assert answer.json()["next"] is None
                    return
                at = answer.links["next"]["url"]

        die(there)
        whole = client.get(f"{path}{'&' if '?' in path else '?'}limit=500").json()[urlsplit(path).path[1:]]
        wanted = [one["id"] for one in whole]
        seen: list[str] = []
        for number, page in enumerate(pages()):
            assert len(page) <= limit
            seen += page
            die(arriving[number] if number < len(arriving) else [])
    assert len(seen) == len(set(seen)), "none twice"
    assert [one for one in seen if one in wanted] == wanted, "none left out, and in order"
