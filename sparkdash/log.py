"""Logging: one line per event, to stderr, in structlog's key=value form.

Rule: never a prompt, a key, or a body; ids, names and figures only. Rule 2: a log that cannot be written (a full disk,
a terminal that is gone) ends nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from sparkdash.redaction import masked
from sparkdash.units import one_line, printable


class _Stderr:
    """Standard error that drops what it cannot write: no caller fails because of the log."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def _shown(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape text of engines, clients and podman: it must neither steer the log's terminal nor begin a line of its
    own.
    """
    return {key: _plain(key, value) for key, value in event.items()}


def _plain(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    clean = masked(value)
    return printable(clean) if key == "exception" else one_line(clean)


def configure(*, level: int = logging.INFO) -> None:
    """Set structlog up for the daemon; plain text, colours only on a terminal."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.processors.format_exc_info,
            _shown,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
