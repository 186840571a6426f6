"""Logging: one line per event, to standard error: time, level, what happened, and figures as key=value.

Rule: never a prompt, a key, or a body; ids, names and figures only. Rule 2: a log that cannot be written (a full disk,
a terminal that is gone) ends nothing.
"""

import contextlib
import sys
from collections.abc import Mapping
from datetime import datetime
from traceback import format_exception

from sparkdash.redaction import masked
from sparkdash.units import one_line, printable

LEVELS = ("debug", "info", "warning", "error", "nothing")
_QUOTED = frozenset(" \"'=")
"""Characters of a value that is written in quotes."""


class Log:
    """Log of this process. `least`: the lowest of the LEVELS that is written."""

    def __init__(self) -> None:
        self.least = "info"

    def debug(self, event: str, **facts: object) -> None:
        self.log("debug", event, facts)

    def info(self, event: str, **facts: object) -> None:
        self.log("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self.log("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        self.log("error", event, facts)

    def exception(self, event: str, exc_info: BaseException | None = None, **facts: object) -> None:
        """Log an error with its traceback; without one the error that is being handled."""
        self.log("error", event, facts, exc_info or sys.exception())

    def log(self, level: str, event: str, facts: Mapping[str, object], error: BaseException | None = None) -> None:
        if LEVELS.index(level) < LEVELS.index(self.least):
            return
        told = " ".join(f"{key}={_shown(value)}" for key, value in facts.items())
        line = f"{datetime.now().isoformat()} [{level:<9}] {_one_line(event):<30} {told}".rstrip()
        trace = "" if error is None else printable(masked("".join(format_exception(error))))
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{line}\n{trace}")
            sys.stderr.flush()


def _one_line(text: str) -> str:
    """Escape text of engines, clients and podman: it must neither steer the terminal nor begin a line of its own."""
    return one_line(masked(text))


def _shown(value: object) -> str:
    text = _one_line(str(value))
    return repr(text) if isinstance(value, str) and not _QUOTED.isdisjoint(text) else text


LOG = Log()
