"""Words for the image of a profile, in tables and on the page of `profiles show`.

Owns: those words. Must not know how an image is found.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkdash.domain.images import ImageOrigin, ImageState, ImageUser, Provenance
from sparkdash.units import DASH, size

ORIGINS = {
    ImageState.TO_PULL: ImageOrigin.PULL,
    ImageState.TO_BUILD: ImageOrigin.BUILD,
    ImageState.NOT_TO_BE_HAD: ImageOrigin.NONE,
}

SHORT = 12
"""Digits of a commit that are shown."""


@dataclass(frozen=True, slots=True)
class ProfileImage:
    """Image of one profile: its state, what it was built from, and how it is got if it is not here."""

    state: ImageState
    provenance: Provenance | None = None
    hint: str | None = None


def image_cell(one: ProfileImage | None, bytes_here: int | None) -> str:
    """Format a table's cell: the size of an image that is here, else how it is got."""
    if one is None:
        return DASH
    if one.state in (ImageState.BUILT, ImageState.PULLED, ImageState.OLDER):
        return size(bytes_here) + (", older" if one.state is ImageState.OLDER else "")
    return ORIGINS[one.state].value if one.state in ORIGINS else DASH


def count_images(images: Iterable[ProfileImage]) -> str:
    """Count profiles by the state of their image: "3 here, 60 to pull, 4 to build"; empty for none."""
    words = {
        "here": (ImageState.PULLED, ImageState.BUILT),
        "older than their build": (ImageState.OLDER,),
        "to pull": (ImageState.TO_PULL,),
        "to build": (ImageState.TO_BUILD,),
        "without a source": (ImageState.NOT_TO_BE_HAD,),
    }
    states = [one.state for one in images]
    counts = {word: sum(state in those for state in states) for word, those in words.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def image_words(profile: ImageUser, one: ProfileImage) -> str | None:
    """Describe an image for `profiles show`; None where nothing is known of it."""
    came = _came_from(one.provenance) if one.provenance else ""
    words = {
        ImageState.BUILT: f"built here{came}",
        ImageState.OLDER: f"built here{came}; OLDER than its `build:`, see `sparkdash build {profile.name}`",
        ImageState.PULLED: "here" if profile.build is None else "here, but not built by `sparkdash build`",
    }
    return words.get(one.state, one.hint)


def _came_from(known: Provenance) -> str:
    source = f" from {known.source}" if known.source else ""
    commit = f"@{known.revision[:SHORT]}" if known.revision else ""
    day = f" on {known.created[:10]}" if known.created else ""
    version = f" by sparkdash {known.version}" if known.version else ""
    return f"{source}{commit}{day}{version}"
