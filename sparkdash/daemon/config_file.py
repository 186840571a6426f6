"""Settings read again after an edit of `config.toml`, while the daemon runs."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from sparkdash.api.answers import Setting, SettingList
from sparkdash.domain.base import field_docstrings
from sparkdash.domain.event import Level, Notice
from sparkdash.errors import HostError, ProfileError, SparkdashError
from sparkdash.paths import lock_file, read_small_text, replace_file
from sparkdash.settings import Settings, parse_settings, parse_toml, set_toml_value

LIVE = frozenset(
    {
        "reserve_gib", "guard", "guard_warn_gib", "guard_hold_gib", "guard_kill_gib", "contiguity", "drain_s",
        "stop_grace_s", "reclaim_s", "drop_page_cache", "no_progress_s", "warm_s", "side_by_side", "idle_ttl_s",
        "policy", "any", "default", "default_after_s", "min_dwell_s", "min_dwell_share",
        "max_wait_s", "queue_limit", "sample_s",
    }
)  # fmt: skip
"""Keys that a running daemon applies after an edit; the others decide its composition."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Effect of an edit on a running daemon."""

    settings: Settings
    taken: tuple[str, ...]
    """Changed keys that apply now."""
    waiting: tuple[str, ...]
    """Changed keys that apply after a restart of the daemon."""


def compare_settings(now: Settings, read: Settings) -> Revision:
    changed = [key for key in Settings.model_fields if getattr(now, key) != getattr(read, key)]
    # the existence of the guard is decided at the daemon's start
    live = LIVE - {"guard"} if "off" in (now.guard, read.guard) else LIVE
    taken = tuple(key for key in changed if key in live)
    settings = Settings.model_validate({**dict(now), **{key: getattr(read, key) for key in taken}})
    return Revision(settings, taken, tuple(key for key in changed if key not in live))


class SettingsReader:
    """Reader of the edited file, which reports each state of the file once."""

    def __init__(self, load: Callable[[], Settings], publish: Callable[[Notice], object]) -> None:
        self._load = load
        self._publish = publish
        self._told: tuple[str, ...] = ()

    async def read(self, now: Settings) -> Settings | None:
        """Read the settings again; None if nothing applies now. An invalid file changes nothing, and is reported."""
        try:
            read = await asyncio.to_thread(self._load)
        except SparkdashError as error:
            self._tell(Level.WARNING, error.code, f"{error.text()} The settings from before stay in force.")
            return None
        found = compare_settings(now, read)
        if found.waiting:
            text = f"config.toml was edited: {', '.join(found.waiting)} will apply after a restart of the daemon."
            self._tell(Level.WARNING, "restart_needed", text)
        else:
            self._told = ()
        if not found.taken:
            return None
        keys = ", ".join(found.taken)
        text = f"The settings were read again, and apply now: {keys}."
        self._publish(Notice(level=Level.INFO, code="settings_read", text=text))
        return found.settings

    def _tell(self, level: Level, code: str, text: str) -> None:
        if self._told != (code, text):
            self._told = (code, text)
            self._publish(Notice(level=level, code=code, text=text))


UNSET = "-"


def list_settings(file: Path, in_force: Settings, read: Callable[[], Settings]) -> SettingList:
    """List the settings: values `in_force` in the running daemon, and those that `read` would give to the next one."""
    try:
        later = read()
    except ProfileError:  # the daemon keeps what it has, and says so in a notice
        later = in_force
    given, default = _given(file), Settings()
    rows = tuple(_row(name, in_force, later, default, given) for name in Settings.model_fields)
    pinned = tuple(name for name, policy in in_force.policy.items() if policy.pinned)
    return SettingList(file=str(file), settings=rows, pinned=pinned, preload=later.preload)


def change_setting(file: Path, key: Sequence[str], value: str | None) -> None:
    """Write one value into the file, or remove it; not where the result is invalid. Raises ProfileError, HostError."""
    try:
        file = file.resolve()  # a link into somebody's collection of settings stays a link
        with lock_file(file):
            old = read_small_text(file) if file.exists() else ""
            mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
            parse_settings(old, file)
            new = set_toml_value(old, key, None if value is None else _toml(key, value))
            parse_settings(new, file)
            if new != old:
                replace_file(file, new.encode(), mode)
    except OSError as error:
        raise HostError(f"{file} cannot be changed: {error.strerror}.", code="config_unwritable") from error


def _row(name: str, in_force: Settings, later: Settings, default: Settings, given: Mapping[str, Any]) -> Setting:
    now, then = getattr(in_force, name), getattr(later, name)
    return Setting(
        name=name,
        value=value_text(now),
        default=value_text(getattr(default, name)),
        meaning=read_meanings(Settings).get(name, ""),
        given=name in given or f"SPARKDASH_{name.upper()}" in os.environ,
        live=name in LIVE,
        waits=value_text(then) if then != now else None,
        editable=not isinstance(now, Mapping | BaseModel),
    )


def value_text(value: Any) -> str:
    """Format a value as TOML; a table as the number of its entries."""
    if value is None:
        return UNSET
    if isinstance(value, bool | int | float):
        return f"{value:g}" if isinstance(value, float) else str(value).lower()
    if isinstance(value, BaseModel | Mapping):
        return _table_text(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(value_text, value))}]"
    return json.dumps(str(value), ensure_ascii=False)


def _table_text(value: BaseModel | Mapping[str, Any]) -> str:
    if isinstance(value, BaseModel):
        return f"{{ {', '.join(f'{name} = {value_text(one)}' for name, one in value)} }}"
    return ", ".join(map(str, value)) or UNSET


def _toml(key: Sequence[str], text: str) -> str:
    """Return the TOML of a person's text: bare words become a text, and a list where the setting is one."""
    told = text.strip()
    field = Settings.model_fields.get(key[0]) if len(key) == 1 else None
    if field is not None and _is_word_list(field.annotation) and not told.startswith("["):
        return json.dumps([one.strip() for one in told.split(",") if one.strip()], ensure_ascii=False)
    try:
        held = parse_toml(f"x = {told}")
    except ValueError:
        return json.dumps(told, ensure_ascii=False)
    return told if list(held) == ["x"] else json.dumps(told, ensure_ascii=False)


def _is_word_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple and get_args(annotation)[0] in (str, Path)


def _given(file: Path) -> Mapping[str, Any]:
    try:
        return parse_toml(read_small_text(file))
    except (OSError, ValueError):
        return {}


@cache
def read_meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the first paragraph below each field of a model, from its source."""
    return {name: " ".join(text.split("\n\n")[0].split()) for name, text in field_docstrings(model).items()}
