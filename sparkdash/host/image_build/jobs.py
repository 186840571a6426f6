"""Builds that a profile's image takes, in their order, each with the digest of what it is made from.

Owns: the order of `needs`, and whether an image that is here is older than its `build:`. Must not know podman or git.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkdash.domain.images.image_build import ImageBuild
from sparkdash.domain.images.provenance import build_digest
from sparkdash.domain.profile import Profile
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.host.image_build.source import local_files


@dataclass(frozen=True, slots=True)
class BuildJob:
    """Image to build."""

    image: str
    profile: str
    """Profile whose file has the `build:`."""
    build: ImageBuild
    folder: Path
    """Folder of that file."""
    digest: str


def image_jobs(profile: Profile, profiles: Mapping[str, Profile]) -> list[BuildJob]:
    """List the builds of a profile's image, needed ones first and its own last.

    Raises:
        AdmissionError: nothing_to_build, build_unavailable.
        ProfileError: a needed image has no build, or the builds need each other.
    """
    if profile.image is None or profile.build is None:
        raise AdmissionError(
            f"{profile.name} has no `build:`.",
            code="nothing_to_build",
            hint=f"`sparkdash pull {profile.name}` fetches what it needs." if profile.image else None,
        )
    makers = {one.image: one for one in profiles.values() if one.image and one.build and one.name == one.built_by}
    jobs: dict[str, BuildJob] = {}
    _add(profile.image, makers, jobs, ())
    return list(jobs.values())


def _add(image: str, makers: Mapping[str, Profile], jobs: dict[str, BuildJob], within: tuple[str, ...]) -> None:
    if image in jobs:
        return
    owner = makers.get(image)
    if owner is None or owner.build is None:
        raise ProfileError(f"No profile says how {image} is built.", hint="Add `build:` to a profile with that image.")
    if image in within:
        raise ProfileError(f"The builds of {' and '.join(within)} need each other.", hint="Correct `needs`.")
    if owner.build.unavailable:
        raise AdmissionError(
            f"{image} cannot be built: {owner.build.unavailable}.",
            code="build_unavailable",
            hint=f"Use {owner.nearest} instead." if owner.nearest else None,
        )
    for needed in owner.build.needs:
        _add(needed, makers, jobs, (*within, image))
    folder = Path(owner.source.rpartition(":")[0]).parent
    needs = {name: jobs[name].digest for name in owner.build.needs}
    digest = build_digest(owner.build, local_files(folder, owner.build), needs)
    jobs[image] = BuildJob(image, owner.name, owner.build, folder, digest)


def current_digests(profiles: Iterable[Profile]) -> dict[str, str]:
    """Return the digest of each image that a profile can build; an image whose build has a mistake is left out."""
    known = {one.name: one for one in profiles}
    found: dict[str, str] = {}
    for profile in known.values():
        if profile.build is None or profile.image is None or profile.image in found:
            continue
        try:
            found |= {job.image: job.digest for job in image_jobs(profile, known)}
        except (AdmissionError, ProfileError, OSError):
            continue
    return found
