"""A fake daemon for the client's tests."""

from collections.abc import Iterator

import pytest
from fake_daemon import FakeDaemon


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    made = FakeDaemon()
    thread = made.start()
    yield made
    made.end(thread)
