"""What every test gets: a home of its own, and no silent skips where CI forbids them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Settings, state and socket in the test's own folder, never the owner's."""
    for name in ("CONFIG", "STATE", "RUNTIME"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setenv(f"SPARKDASH_{name}_DIR", str(folder))
    for name in ("HOST", "PORT", "RUNTIME", "URL"):
        monkeypatch.delenv(f"SPARKDASH_{name}", raising=False)
    return tmp_path


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """On CI a skipped test is a failed one: what was not run was not seen to work."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("SPARKDASH_FORBID_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and SPARKDASH_FORBID_SKIPS is set: {report.longrepr}"
