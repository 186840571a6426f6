"""List of profile sources: `sources.toml` in the config folder.

Owns: the file; each change is written whole or not at all. Must not know git.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from sparkdash import paths
from sparkdash.errors import ProfileError
from sparkdash.paths import lock_file, replace_file
from sparkdash.sources.source import Source, source_refused

FILE_NAME = "sources.toml"
_HEAD = """\
# Collections that profiles can be added from. `sparkdash profiles sources` writes this file.
"""


def sources_file() -> Path:
    """Return the path of this user's list."""
    return paths.config_dir() / FILE_NAME


def read_sources() -> tuple[Source, ...]:
    """Return the sources in the file's order; () without a file. Raises ProfileError: sources_invalid."""
    path = sources_file()
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
        return tuple(Source.model_validate({**table, "name": name}) for name, table in tables.items())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _invalid(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    except (ValueError, TypeError) as error:  # TOML, UTF-8, or a value where a table belongs
        raise _invalid(f"{path}: {error}.") from None


def find_source(name: str) -> Source:
    """Return the source of this name. Raises ProfileError: source_unknown."""
    known = read_sources()
    for source in known:
        if source.name == name:
            return source
    raise ProfileError(
        f"There is no source {name!r}.",
        code="source_unknown",
        hint=f"Known: {', '.join(source.name for source in known)}."
        if known
        else "`sparkdash profiles sources add NAME_OR_URL` adds one.",
    )


def put_source(source: Source) -> None:
    """Add a source, or replace the one of this name. Raises ProfileError."""

    def with_it(known: Sequence[Source]) -> Sequence[Source]:
        kept = [source if one.name == source.name else one for one in known]
        return kept if source in kept else [*kept, source]

    _change(with_it)


def remove_source(name: str) -> None:
    """Remove a source. Raises ProfileError: source_unknown."""
    find_source(name)
    _change(lambda known: [source for source in known if source.name != name])


def _change(to: Callable[[Sequence[Source]], Sequence[Source]]) -> None:
    path = sources_file()
    try:
        with lock_file(path):
            replace_file(path, "\n".join([_HEAD, *map(_table, to(read_sources()))]).encode())
    except OSError as error:
        raise source_refused(f"{path} cannot be written: {error.strerror}.") from None


def _table(source: Source) -> str:
    values = source.model_dump(exclude={"name"}, exclude_none=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]  # a JSON string is a TOML string
    return "\n".join([f"[{json.dumps(source.name)}]", *lines, ""])


def _invalid(what: str) -> ProfileError:
    return ProfileError(what, code="sources_invalid", hint="Correct it, or move it away and add the sources again.")
