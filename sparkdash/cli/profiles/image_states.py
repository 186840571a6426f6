"""States of profiles' images on this box: pulled, built, older than their `build:`, or how they are got.

Owns: the question to podman about built images, and the comparison with today's files. Must not know tables. Rule: a
list never fails over this; what cannot be asked is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from sparkdash.cli.profiles.image_words import ProfileImage
from sparkdash.domain.images import ImageState, ImageUser, Provenance, how_to_get, image_state
from sparkdash.domain.profile import Profile, ProfileSummary
from sparkdash.errors import SparkdashError
from sparkdash.host.shelf import ProfileStock


def image_states(
    profiles: Sequence[ProfileSummary], stock: Mapping[str, ProfileStock], *, containerised: bool
) -> dict[str, ProfileImage]:
    """Judge the image of each profile that `stock` knows; plain processes need none."""
    if not containerised:
        return {one.name: ProfileImage(ImageState.NOT_NEEDED) for one in profiles if one.name in stock}
    built = {
        one.image
        for one in profiles
        if one.image and one.build and (known := stock.get(one.name)) and known.image and known.image.here
    }
    found = _provenance(built)
    current = _current() if found else {}
    return {
        one.name: _judged(one, None if known.image is None else known.image.here, found, current)
        for one in profiles
        if (known := stock.get(one.name)) is not None
    }


def catalog_images(profiles: Mapping[str, Profile]) -> dict[str, ProfileImage]:
    """Judge the image of each profile of a catalog that is started here; empty where no runtime answers."""
    from sparkdash.cli.local import make_runtime
    from sparkdash.cli.profiles.local_files import local_images
    from sparkdash.settings import load_settings

    started = {one.name: one for one in profiles.values() if one.image and not one.cannot_run}
    stock = local_images(make_runtime(load_settings()), [one.image or "" for one in started.values()])
    built = {name for name, found in stock.items() if found.here}
    found = _provenance(one.image for one in started.values() if one.image in built and one.build)
    current = _current() if found else {}
    return {
        name: _judged(one, stock[one.image or ""].here, found, current)
        for name, one in started.items()
        if one.image in stock
    }


def profile_image(profile: Profile, *, here: bool | None) -> ProfileImage:
    """Judge the image of one profile."""
    found = _provenance([profile.image] if here and profile.image else [])
    return _judged(profile, here, found, _current() if found else {})


def older_images(own: Iterable[Profile], profiles: Mapping[str, Profile]) -> list[Profile]:
    """List the profiles whose built image is older than their `build:`; without podman none."""
    from sparkdash.host.image_build import current_digests

    listed = [one for one in own if one.image]
    found = _provenance(one.image or "" for one in listed)
    current = current_digests(profiles.values()) if found else {}
    return [
        one
        for one in listed
        if (known := found.get(one.image or "")) and current.get(one.image or "", known.digest) != known.digest
    ]


def _judged(
    profile: ImageUser, here: bool | None, found: Mapping[str, Provenance], current: Mapping[str, str]
) -> ProfileImage:
    known = found.get(profile.image or "")
    state = image_state(
        profile, here=here, digest=known.digest if known else None, current=current.get(profile.image or "")
    )
    lacks = state in (ImageState.TO_BUILD, ImageState.TO_PULL, ImageState.NOT_TO_BE_HAD)
    return ProfileImage(state, known, how_to_get(profile) if lacks else None)


def _provenance(images: Iterable[str | None]) -> dict[str, Provenance]:
    from sparkdash.host.image_build import local_images

    names = [*dict.fromkeys(filter(None, images))]
    if not names:
        return {}
    try:
        found = asyncio.run(local_images(names))
    except (SparkdashError, OSError):
        return {}
    return {name: one.provenance for name, one in found.items() if one.provenance is not None}


def _current() -> dict[str, str]:
    from sparkdash.cli.local import configured_catalog
    from sparkdash.host.image_build import current_digests

    return current_digests(configured_catalog().profiles.values())
