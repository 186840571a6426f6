"""Images: how one is built and what a build recorded; images and weights on the box, its nodes, under way. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Protocol

from pydantic import Field, model_validator

from sparkdash.domain.base import Frozen
from sparkdash.redaction import is_secret_variable
from sparkdash.units import duration

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
    def _one_source(self) -> "ImageBuild":
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
    def _safe_address(self) -> "ImageBuild":
        if self.repo is not None and not _REPO.fullmatch(self.repo):
            raise ValueError("'repo' must be an https or git address, or git@HOST:PATH")
        if self.repo is not None and _LOGIN.match(self.repo):
            raise ValueError("'repo' has a name or a password in it; git's own credential store keeps those")
        paths = (self.context, self.containerfile)
        if climbing := next((path for path in paths if path and ".." in path.split("/")), None):
            raise ValueError(f"{climbing!r} leads out of the source")
        return self

    @model_validator(mode="after")
    def _fitting_keys(self) -> "ImageBuild":
        if secret := next((name for name in self.args if is_secret_variable(name)), None):
            raise ValueError(f"the build argument {secret} looks like a secret, and anyone can read it in the image")
        return self

    @property
    def origin(self) -> str:
        """Repository with the first digits of its commit, or the folder beside the profile."""
        return f"{self.repo}@{(self.commit or '')[:12]}" if self.repo else f"{self.context}/ beside the profile"


BUILT_HERE = "localhost/"
"""Beginning of the names that podman gives images built on the box; no registry answers to it."""


class ImageOrigin(StrEnum):
    """Way to an image that is not on the box."""

    PULL = "to pull"
    """A registry has it."""
    BUILD = "to build"
    """`sparkdash build` makes it."""
    NONE = "no source"
    """Neither: its source is not public, or no profile says how it is built."""


def image_origin(image: str, build: ImageBuild | None) -> ImageOrigin:
    if build is not None:
        return ImageOrigin.NONE if build.unavailable else ImageOrigin.BUILD
    return ImageOrigin.NONE if image.startswith(BUILT_HERE) else ImageOrigin.PULL


class ImageState(StrEnum):
    """State of the image that a profile names."""

    BUILT = "built"
    OLDER = "older"
    """Built from what is no longer in the profile."""
    PULLED = "pulled"
    """Here, and not built by `sparkdash build`."""
    TO_BUILD = "to_build"
    TO_PULL = "to_pull"
    NOT_TO_BE_HAD = "not_to_be_had"
    """In no registry, and no profile says how it is built, or that its source is not public."""
    NOT_NEEDED = "not_needed"
    UNKNOWN = "unknown"


class ImageUser(Protocol):
    """Part of a profile, or of its summary, that names an image."""

    @property
    def name(self) -> str: ...
    @property
    def image(self) -> str | None: ...
    @property
    def build(self) -> ImageBuild | None: ...
    @property
    def nearest(self) -> str | None: ...


def image_state(
    profile: ImageUser, *, here: bool | None, digest: str | None = None, current: str | None = None
) -> ImageState:
    """Judge a profile's image. `here`: whether it is on this box, None while unknown.

    `digest`: what it was built from, None for an image that sparkdash did not build. `current`: what its `build:` says
    today, None without one.
    """
    if profile.image is None:
        return ImageState.NOT_NEEDED
    if here is None:
        return ImageState.UNKNOWN
    if here and digest is not None:
        return ImageState.BUILT if current in (None, digest) else ImageState.OLDER
    if here:
        return ImageState.PULLED
    lacking = {ImageOrigin.PULL: ImageState.TO_PULL, ImageOrigin.BUILD: ImageState.TO_BUILD}
    return lacking.get(image_origin(profile.image, profile.build), ImageState.NOT_TO_BE_HAD)


def how_to_get(profile: ImageUser) -> str:
    """Say how an image that is not here is got, and which profile serves the same without it."""
    build, image = profile.build, profile.image or ""
    if build is not None and build.unavailable:
        told = f"It cannot be built: {build.unavailable}."
    elif build is not None:
        took = f", about {duration(build.minutes * 60)}" if build.minutes else ""
        told = f"It must be built: `sparkdash build {profile.name}`{took}."
    elif image.startswith(BUILT_HERE):
        told = "No registry has it: build it yourself, or say how with `build:` in the profile."
    else:
        told = f"Fetch it with `sparkdash pull {profile.name}`."
    return f"{told} {nearest_words(profile)}".rstrip()


def nearest_words(profile: ImageUser) -> str:
    if not profile.nearest:
        return ""
    return f"{profile.nearest} serves the same model from a published image: `sparkdash use {profile.nearest}`."


LABEL_DIGEST = "sparkdash.build.digest"
LABEL_PROFILE = "sparkdash.build.profile"
LABEL_VERSION = "sparkdash.build.version"
LABEL_SOURCE = "org.opencontainers.image.source"
LABEL_REVISION = "org.opencontainers.image.revision"
LABEL_BASE = "org.opencontainers.image.base.name"

_NOT_BUILT_FROM = {"minutes", "disk_gib", "memory_gib", "licence", "source", "unavailable"}
"""Keys of a build that change nothing of its image."""


class Provenance(Frozen):
    """Origin of an image that `sparkdash build` made."""

    digest: str
    profile: str | None = None
    source: str | None = None
    revision: str | None = None
    version: str | None = None
    created: str | None = None
    architecture: str | None = None


def build_digest(build: ImageBuild, files: Mapping[str, str]) -> str:
    """Hash (12 hex digits) of what an image is made from. `files`: digests of the files beside the profile, by path."""
    made = build.model_dump(mode="json", exclude=_NOT_BUILT_FROM, exclude_defaults=True)
    text = json.dumps([made, dict(files), {}], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def build_labels(build: ImageBuild, *, profile: str, digest: str, version: str) -> dict[str, str]:
    labels = {
        LABEL_DIGEST: digest,
        LABEL_PROFILE: profile,
        LABEL_VERSION: version,
        LABEL_SOURCE: build.repo or build.context or "",
    }
    if build.commit:
        labels[LABEL_REVISION] = build.commit
    if build.base:
        labels[LABEL_BASE] = build.base
    return labels


def read_provenance(labels: Mapping[str, str], *, created: str | None, architecture: str | None) -> Provenance | None:
    """Read the labels of an image; None for an image that sparkdash did not build."""
    if LABEL_DIGEST not in labels:
        return None
    return Provenance(
        digest=labels[LABEL_DIGEST],
        profile=labels.get(LABEL_PROFILE),
        source=labels.get(LABEL_SOURCE),
        revision=labels.get(LABEL_REVISION),
        version=labels.get(LABEL_VERSION),
        created=created,
        architecture=architecture,
    )


class Item(Frozen):
    """Image, or all weights of a profile. `size` is bytes on disk; for incomplete weights, the bytes so far."""

    here: bool
    size: int | None = None


class NodeStock(Frozen):
    """Whether another node has a profile's image and all of its weights. None: not needed."""

    image: bool | None = None
    weights: bool | None = None

    @property
    def is_complete(self) -> bool:
        return False not in (self.image, self.weights) and (self.image, self.weights) != (None, None)


class Stock(Frozen):
    """Image and weights of one profile. None: not needed, or unknown."""

    image: Item | None = None
    weights: Item | None = None
    nodes: dict[str, NodeStock] = {}
    """Image and weights on other nodes; nodes that did not answer are left out."""


class Inventory(Frozen):
    """Stock of all profiles; a profile of which nothing is known, such as a simulated one, is absent."""

    stock: dict[str, Stock] = {}


class CopyKind(StrEnum):
    """Kind of a copied thing: image or weights."""

    IMAGE = "image"
    WEIGHTS = "weights"


class CopyStep(StrEnum):
    """Step of a copy, in their order."""

    CHECK = "check"
    """Files of both nodes are compared; what differs in its time only is hashed."""
    SEND = "send"
    LOAD = "load"
    """The other node's runtime unpacks the image."""


class CopyItem(Frozen):
    """An image or a model on its way to a node."""

    kind: CopyKind
    name: str
    """Name of the image, or path or repository of the model."""
    bytes: int
    missing_bytes: int
    """Bytes still to send; 0: everything is there."""
    here: bool = True
    """Whether this box has it. What neither has cannot be copied."""
    replaces: str | None = None
    """Id of the image of the same name on the node, which differs."""


class CopyPlan(Frozen):
    """Image and weights that a profile needs on a node, and the part that is missing there."""

    profile: str
    node: str
    items: tuple[CopyItem, ...] = ()
    alike: bool = True
    """Whether the node must have the same as this box, as for an engine on both."""

    @property
    def missing(self) -> tuple[CopyItem, ...]:
        return tuple(item for item in self.items if item.missing_bytes or not item.here)

    @property
    def missing_bytes(self) -> int:
        return sum(item.missing_bytes for item in self.items)


class CopyProgress(Frozen):
    """Progress report of a copy. Bytes are those of the present step."""

    kind: CopyKind
    name: str
    node: str
    step: CopyStep
    came_bytes: int
    total_bytes: int
    """Bytes of this step, with what had come before; 0: unknown."""
    bytes_per_s: float | None = None
    eta_s: float | None = None
    done: bool = False
