"""Profile source: a git collection, its short name and pinned commit.

Owns: the shape of a source, the rules of names and addresses, and the collections known by name. Must not know git's
commands.
Pure.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import Field

from sparkdash.domain.base import Frozen
from sparkdash.errors import ProfileError

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
        """First digits of the commit."""
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
    """Make the error for a source that cannot be used."""
    return ProfileError(message, code="source_refused", hint=hint)
