"""Settings read again after an edit of `config.toml`, while the daemon runs.

Owns: which keys apply at once, the notices about the others, and the meaning of a missing or empty file. Must not know
the effect of the values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparkdash.domain.event import Level, Notice
from sparkdash.errors import SparkdashError
from sparkdash.settings import Settings

LIVE = frozenset(
    {
        "reserve_gib", "guard", "guard_warn_gib", "guard_hold_gib", "guard_kill_gib", "contiguity", "drain_s",
        "stop_grace_s", "reclaim_s", "drop_page_cache", "no_progress_s", "warm_s", "side_by_side", "idle_ttl_s",
        "policy", "hooks", "alerts", "any", "sets", "default", "default_after_s", "min_dwell_s", "max_wait_s",
        "queue_limit", "sample_s",
    }
)  # fmt: skip
"""Keys that a running daemon applies after an edit; the others decide its composition."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Effect of an edit on a running daemon."""

    settings: Settings
    """Settings from now on."""
    taken: tuple[str, ...]
    """Changed keys that apply now."""
    waiting: tuple[str, ...]
    """Changed keys that apply after a restart of the daemon."""


def compare_settings(now: Settings, read: Settings) -> Revision:
    """Compare the present settings with those just read."""
    changed = [key for key in Settings.model_fields if getattr(now, key) != getattr(read, key)]
    # the existence of the guard is decided at the daemon's start
    live = LIVE - {"guard"} if "off" in (now.guard, read.guard) else LIVE
    taken = tuple(key for key in changed if key in live)
    settings = Settings.model_validate({**dict(now), **{key: getattr(read, key) for key in taken}})
    return Revision(settings, taken, tuple(key for key in changed if key not in live))


class SettingsReader:
    """Reader of the edited file, which reports each state of the file once."""

    def __init__(self, load: Callable[[], Settings], publish: Callable[[Notice], object], file: Path) -> None:
        self._load = load
        self._publish = publish
        self._file = file
        self._told: tuple[str, ...] = ()

    async def read(self, now: Settings) -> Settings | None:
        """Read the settings again; None if nothing applies now. An invalid file changes nothing, and is reported."""
        try:
            size, read = await asyncio.to_thread(self._look)
        except SparkdashError as error:
            self._tell(Level.WARNING, error.code, f"{error.text()} The settings from before stay in force.")
            return None
        found = compare_settings(now, read)
        if size == 0 and (found.taken or found.waiting):  # valid, but a full disk empties a file during a write
            kept = ", ".join(found.taken + found.waiting)
            text = f"config.toml is empty; {kept} keep their values. Delete the file to use the defaults."
            self._tell(Level.WARNING, "settings_empty", text)
            return None
        if found.waiting:
            text = f"config.toml was edited: {', '.join(found.waiting)} will apply after a restart of the daemon."
            self._tell(Level.WARNING, "restart_needed", text)
        else:
            self._told = ()
        if not found.taken:
            return None
        keys = ", ".join(found.taken)
        gone = f"config.toml is gone: the defaults now apply to {keys}."
        text = gone if size is None else f"config.toml was read again: its values now apply to {keys}."
        self._publish(Notice(level=Level.INFO, code="settings_read", text=text))
        return found.settings

    def _look(self) -> tuple[int | None, Settings]:
        """Return the file's size, None without a file, and its settings."""
        try:
            size = self._file.stat().st_size
        except OSError:
            size = None
        return size, self._load()

    def _tell(self, level: Level, code: str, text: str) -> None:
        if self._told != (code, text):
            self._told = (code, text)
            self._publish(Notice(level=level, code=code, text=text))
