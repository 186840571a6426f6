"""A file for the store, and a store that tries again at once."""

from pathlib import Path

import pytest

from sparkdash.store import schema
from sparkdash.store import store as store_module


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sparkdash.db"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for more rows, and what could not be written is tried again in a moment."""
    monkeypatch.setattr(schema, "BUSY_S", 0.0)
    monkeypatch.setattr(store_module, "FIGURES_S", 0.0)
    monkeypatch.setattr(store_module, "TOGETHER_S", 0.0)
    monkeypatch.setattr(store_module, "AGAIN_S", 0.01)
