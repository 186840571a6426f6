"""Logging: one line per event, to stderr, in structlog's key=value form.

Owns: how the daemon's log looks. Rule: never a prompt, a key, or a body; ids, names and figures only.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure(*, level: int = logging.INFO) -> None:
    """Set structlog up for the daemon; plain text, colours only on a terminal."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
