"""Lines that the program logs, as a test reads them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from sparkdash.log import LOG


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []

    def log(level: str, event: str, facts: Mapping[str, object], _error: BaseException | None = None) -> None:
        lines.append({"event": event, "log_level": level, **facts})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOG, "log", log)
        yield lines
