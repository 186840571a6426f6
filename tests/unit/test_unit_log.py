"""The daemon's log, where it cannot be written."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator

import pytest
import structlog

from sparkdash import log


class Full:
    """A file on a full disk."""

    def isatty(self) -> bool:
        return False

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    flush = isatty


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_log_that_cannot_be_written_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a full disk serves on: it ended at the next line, and did not start."""
    monkeypatch.setattr(sys, "stderr", Full())
    log.configure()
    structlog.get_logger("sparkdash").info("serving", url="http://127.0.0.1:8484/v1")
