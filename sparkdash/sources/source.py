"""Profile source: a git collection with its short name and pinned commit, and the list of them in `sources.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, ValidationError

from sparkdash import paths
from sparkdash.domain.base import Frozen
from sparkdash.errors import ProfileError
from sparkdash.paths import lock_file, replace_file
from sparkdash.settings import parse_toml

SOURCE_NAME = r"^[a-z0-9][a-z0-9.-]{0,39}$"
_SCHEMES = ("https", "http", "ssh", "git", "file")
_SCP = re.compile(r"^(?:[\w.-]+@)?[\w.-]+:(?!//)[^\s]+$")
SHORT_COMMIT = 10

WELL_KNOWN = {
    "spark-arena": "https://github.com/spark-arena/recipe-registry",
    "eugr": "https://github.com/eugr/spark-vllm-docker",
    "mfellner": "https://github.com/mfellner/sparkrun-recipes",
}
"""Public collections for one or several Sparks that can be added by name."""


class Source(Frozen):
    """Collection that profiles can be added from."""

    name: Annotated[str, Field(pattern=SOURCE_NAME)]
    url: str
    ref: str | None = None
    """Branch, tag or commit that updates follow; None: the default branch."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
    """Commit that everything is read from until an update is accepted."""
    updated_at: str
    """Day of the last accepted update, as 2026-11-23."""

    @property
    def short_commit(self) -> str:
        return self.commit[:SHORT_COMMIT]


def source_url(given: str) -> str:
    """Return the git address that `given` means: a well-known name, an address, or a folder.

    Raises:
        ProfileError: source_refused: not an address, or one with a password.
    """
    if given in WELL_KNOWN:
        return WELL_KNOWN[given]
    if given.startswith("/") or (_SCP.match(given) and "://" not in given):
        return given
    parts = urlsplit(given)
    if parts.scheme not in _SCHEMES or not (parts.netloc or parts.scheme == "file"):
        raise source_refused(
            f"{given!r} is not the address of a git repository.",
            f"Give https://…, USER@HOST:PATH, an absolute path, or one of {', '.join(WELL_KNOWN)}.",
        )
    if _has_secret(parts):
        raise source_refused(
            "The address holds a password or token, which would be kept in a file.",
            "Leave it out, and let git's credential helper or an ssh key log in.",
        )
    return given


def _has_secret(parts: SplitResult) -> bool:
    """Whether the address holds a password or token; the user of an ssh address is none."""
    return bool(parts.password or (parts.username and parts.scheme.startswith("http")))


def default_name(given: str) -> str:
    """Return a name for the collection: the well-known name, else the repository's owner or own name."""
    if given in WELL_KNOWN:
        return given
    for name, url in WELL_KNOWN.items():
        if given.removesuffix("/").removesuffix(".git") == url:
            return name
    words = [word for word in re.split(r"[/:]", given.removesuffix("/").removesuffix(".git")) if word]
    local = given.startswith(("/", "file:"))
    chosen = words[-1] if local or len(words) < 2 else words[-2]
    return re.sub(r"[^a-z0-9.-]+", "-", chosen.lower()).strip("-.")[:40] or "source"


def source_refused(message: str, hint: str | None = None) -> ProfileError:
    return ProfileError(message, code="source_refused", hint=hint)


FILE_NAME = "sources.toml"
_HEAD = """\
# Collections that profiles can be added from. `sparkdash profiles sources` writes this file.
"""


def sources_file() -> Path:
    return paths.config_dir() / FILE_NAME


def read_sources() -> tuple[Source, ...]:
    path = sources_file()
    try:
        tables = parse_toml(paths.read_small_text(path))
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
    def with_it(known: Sequence[Source]) -> Sequence[Source]:
        kept = [source if one.name == source.name else one for one in known]
        return kept if source in kept else [*kept, source]

    _change(with_it)


def remove_source(name: str) -> None:
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
