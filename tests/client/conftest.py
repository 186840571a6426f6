"""A fake daemon for the client's tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


def load_fake() -> ModuleType:
    """`fake_daemon.py`, whatever folder pytest was started in; loaded once for both rooms that use it."""
    if "fake_daemon" not in sys.modules:
        spec = importlib.util.spec_from_file_location("fake_daemon", Path(__file__).parent / "fake_daemon.py")
        assert spec
        assert spec.loader
        sys.modules["fake_daemon"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["fake_daemon"]


fake = load_fake()


@pytest.fixture
def daemon() -> Iterator[object]:
    made = fake.FakeDaemon()
    thread = made.start()
    yield made
    made.end(thread)
