"""Changes of single values in a TOML text; comments, order and layout of everything else stay."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from sparkdash.errors import ProfileError


def set_toml_value(text: str, path: Sequence[str], value: str | None) -> str:
    """Return `text` with the value at `path` replaced, added, or removed (`value` None). `value` is TOML.

    The new text is parsed again, and must hold exactly the old content with this one change.

    Raises:
        ProfileError: code `toml_layout`, when a comment within the old value would be lost.
    """
    import tomlkit  # 80 ms, and only an owner's change needs it

    new = None if value is None else tomlkit.value(value)
    document, wanted = tomlkit.parse(text), tomllib.loads(text)
    old = _put(document, path, new)
    _put(wanted, path, None if new is None else new.unwrap())
    changed = tomlkit.dumps(document)
    lost = isinstance(old, tomlkit.items.Array) and "\n" in old.as_string() and "#" in old.as_string()
    if lost or tomllib.loads(changed) != wanted:
        raise ProfileError(
            f"{'.'.join(path)} is written in a way that cannot be changed without losing what stands around it.",
            code="toml_layout",
            hint="Change the value in the file itself.",
        )
    return changed


def _put(tables: Any, path: Sequence[str], value: Any) -> Any:
    """Set the value at `path`, or remove it (None); return the old one."""
    *above, key = path
    for name in above:
        if name not in tables and value is None:
            return None
        tables = tables.setdefault(name, {})
    old = tables.get(key)
    if value is None:
        tables.pop(key, None)
    else:
        tables[key] = value
    return old
