"""Folder of an image's builds: the checkout, the logs, and the mark of a build that runs.

Owns: the paths and the mark. Must not know what a build does.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sparkdash import paths
from sparkdash.errors import HostError

LOGS = 5
"""Logs that are kept of one image."""


class BuildFolder:
    """Files of the builds of one image; made when first written to."""

    def __init__(self, image: str) -> None:
        name = "".join(letter if letter.isalnum() or letter in ".-_" else "-" for letter in image)
        self.path = paths.state_dir() / "builds" / name.removeprefix("localhost-")
        self.source = self.path / "source"
        self.id_file = self.path / "image-id"
        self._mark = self.path / "running.json"

    def new_log(self) -> Path:
        """Name the log of a new build, and remove the oldest ones."""
        self.path.mkdir(parents=True, exist_ok=True)
        logs = sorted(self.path.glob("*.log"))
        for old in logs[: max(0, len(logs) - LOGS + 1)]:
            old.unlink(missing_ok=True)
        return self.path / time.strftime("%Y%m%d-%H%M%S.log", time.gmtime())

    @contextmanager
    def held(self, image: str) -> Iterator[float | None]:
        """Hold the folder for one build; give the begin of an earlier one that was interrupted, else None.

        Raises:
            HostError: build_runs.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HostError(
                    f"{image} is being built already.", code="build_runs", hint=f"Its log is in {self.path}."
                ) from None
            earlier = self._read().get("began")
            self._mark.write_text(json.dumps({"began": time.time(), "pid": os.getpid()}))
            yield float(earlier) if isinstance(earlier, int | float) else None

    def finish(self, took_s: float) -> None:
        """Note that the build is over, and how long it took if it is the longest so far: others began half-way."""
        longest = max(took_s, self.longest_took_s() or 0)
        (self.path / "took.json").write_text(json.dumps({"seconds": round(longest, 1)}))
        self.settle()

    def settle(self) -> None:
        """Note that nothing of a build is left."""
        self._mark.unlink(missing_ok=True)

    @property
    def interrupted(self) -> bool:
        """Whether an earlier build did not finish: its layers are on the disk."""
        return self._mark.exists()

    def longest_took_s(self) -> float | None:
        """Return the seconds of the longest build that succeeded; None if there was none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads((self.path / "took.json").read_text())["seconds"])
        return None

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            found = json.loads(self._mark.read_text())
            return found if isinstance(found, dict) else {}
        return {}
