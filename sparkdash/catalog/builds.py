"""Builds over all profiles: who says how an image is made, and which images nobody makes.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkdash.catalog.catalog import ProfileProblem
from sparkdash.catalog.schema import Section
from sparkdash.domain.profile import Profile


def share_builds(
    found: Sequence[tuple[Section, Profile]], profiles: Mapping[str, Profile]
) -> tuple[dict[str, Profile], list[ProfileProblem]]:
    """Give each profile the build of its image, and tell what contradicts or lacks."""
    owners: dict[str, Profile] = {}
    for profile in sorted(profiles.values(), key=_is_without_source):
        if profile.image and profile.build:
            owners.setdefault(profile.image, profile)
    shared = {name: _with_build(profile, owners) for name, profile in profiles.items()}
    return shared, [problem for section, profile in found for problem in _problems(section, profile, owners)]


def _is_without_source(profile: Profile) -> bool:
    return profile.build is not None and profile.build.unavailable is not None


def _with_build(profile: Profile, owners: Mapping[str, Profile]) -> Profile:
    owner = owners.get(profile.image or "")
    return profile.replace(build=owner.build, built_by=owner.name) if owner else profile


def _problems(section: Section, profile: Profile, owners: Mapping[str, Profile]) -> Iterator[ProfileProblem]:
    if profile.build is None:
        return
    owner = owners.get(profile.image or "")
    if owner is not None and owner.build != profile.build and not _is_without_source(profile):
        text = f"is another than that of {owner.name} ({owner.source}), for the same image"
        yield section.problem(("build",), text, "Write one of them, or name this image differently.")
