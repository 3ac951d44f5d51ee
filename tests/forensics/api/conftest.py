"""The API over a store, in the process and served."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from forensics.api import Serving, create_app, serve
from forensics.store import Store
from tests.forensics.factories import HEALTH

CAUSES = (("kernel-oom", "kernel-oom"), ("python-exception", "traceback"))


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(store, lambda: HEALTH, causes=CAUSES), base_url="http://localhost:8642") as made:
        yield made


@pytest.fixture
def serving(store: Store) -> Iterator[Serving]:
    made = serve(create_app(store, lambda: HEALTH, causes=CAUSES), "127.0.0.1", 0)
    yield made
    made.close()
