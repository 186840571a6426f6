"""ImageOrigin: where the image of a profile comes from on a box that does not have it.

Owns: which images no registry has. Must not know podman, or what is on a box.
Pure.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.images.image_build import ImageBuild

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
    """Return where the image comes from; `build` is the one of its profile, or of another with the same image."""
    if build is not None:
        return ImageOrigin.NONE if build.unavailable else ImageOrigin.BUILD
    return ImageOrigin.NONE if image.startswith(BUILT_HERE) else ImageOrigin.PULL
