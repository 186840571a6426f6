"""Availability of a profile's image: here, to be pulled, to be built, or not to be had; and the words for it.

Owns: the states and what a person is told to do. Must not know how images are found or made.
Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from sparkdash.domain.images.image_build import ImageBuild
from sparkdash.domain.images.origin import BUILT_HERE, ImageOrigin, image_origin
from sparkdash.units import duration


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
    def name(self) -> str: ...  # noqa: D102
    @property
    def image(self) -> str | None: ...  # noqa: D102
    @property
    def build(self) -> ImageBuild | None: ...  # noqa: D102
    @property
    def nearest(self) -> str | None: ...  # noqa: D102


def image_state(
    profile: ImageUser, *, here: bool | None, digest: str | None = None, current: str | None = None
) -> ImageState:
    """Judge a profile's image.

    `here`: whether it is on this box, None while unknown. `digest`: what it was built from, None for an image that
    sparkdash did not build. `current`: what its `build:` says today, None without one.
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
    """Name the profile that needs no build; empty without one."""
    if not profile.nearest:
        return ""
    return f"{profile.nearest} serves the same model from a published image: `sparkdash use {profile.nearest}`."
