"""ImageBuild: how the image of a profile is made where no registry has it.

Owns: the keys of `build:`, and what they must not say. Must not know podman, git, or the files they name.
Pure.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from sparkdash.domain.base import Frozen
from sparkdash.redaction import is_secret_variable

_REPO = re.compile(r"(https|git)://[^\s#]+|git@[^\s:#]+:[^\s#]+")
"""Addresses that podman takes for a repository of git."""

_LOGIN = re.compile(r"\w+://[^/]*@")
"""A login before the host."""

SourcePath = Annotated[str, Field(pattern=r"^[^/\\\s-][^\\\x00-\x1f]*$")]
"""Path below a folder: never absolute, never an option."""

BuildArgument = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ImageName = Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9._:/@-]*$")]
Positive = Annotated[float, Field(gt=0, le=100000, allow_inf_nan=False)]


class ImageBuild(Frozen):
    """Source of an image and how it is built. One of `repo`, `context`, `unavailable` says which kind it is."""

    repo: str | None = None
    """Git repository of the source. Without it the source is a folder beside the profile's file."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Commit of the repository, with all its 40 digits: a branch or tag may move."""
    context: SourcePath | None = None
    """Folder that the build sees: in the repository, or beside the profile's file. Default: the repository's root."""
    containerfile: SourcePath | None = None
    """Containerfile within the context. Default: Containerfile, else Dockerfile."""
    target: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """Stage of the Containerfile to stop at."""
    args: dict[BuildArgument, str] = {}
    """Build arguments; anyone can read them in the image."""
    base: ImageName | None = None
    """Image to use in the first FROM instead of the one that stands there, best with its digest."""
    minutes: Positive | None = None
    """Published or estimated minutes of the whole build on a DGX Spark."""
    disk_gib: Positive | None = None
    """Disk that the build needs at its peak, base images included."""
    memory_gib: Positive | None = None
    """Memory that compiling needs; the build does not begin without it."""
    licence: str | None = None
    """Licence of the source, or that it names none."""
    source: str | None = None
    """Document in which commit, time and sizes were read."""
    unavailable: str | None = None
    """Why this image cannot be built, such as a source that is not public."""

    @model_validator(mode="after")
    def _one_source(self) -> ImageBuild:
        if self.unavailable is not None:
            if self.repo or self.context or self.containerfile:
                raise ValueError("an 'unavailable' image has no 'repo', 'context' or 'containerfile'")
            return self
        if self.repo is None and self.context is None:
            raise ValueError("give 'repo' with 'commit', or 'context', or 'unavailable' with the reason")
        if (self.repo is None) != (self.commit is None):
            raise ValueError("'repo' and 'commit' go together")
        return self

    @model_validator(mode="after")
    def _safe_address(self) -> ImageBuild:
        if self.repo is not None and not _REPO.fullmatch(self.repo):
            raise ValueError("'repo' must be an https or git address, or git@HOST:PATH")
        if self.repo is not None and _LOGIN.match(self.repo):
            raise ValueError("'repo' has a name or a password in it; git's own credential store keeps those")
        paths = (self.context, self.containerfile)
        if climbing := next((path for path in paths if path and ".." in path.split("/")), None):
            raise ValueError(f"{climbing!r} leads out of the source")
        return self

    @model_validator(mode="after")
    def _fitting_keys(self) -> ImageBuild:
        if secret := next((name for name in self.args if is_secret_variable(name)), None):
            raise ValueError(f"the build argument {secret} looks like a secret, and anyone can read it in the image")
        return self

    @property
    def origin(self) -> str:
        """Repository with the first digits of its commit, or the folder beside the profile."""
        return f"{self.repo}@{(self.commit or '')[:12]}" if self.repo else f"{self.context}/ beside the profile"
