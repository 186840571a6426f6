"""Order of profiles in lists: by family, and families of which no member can run at the end.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkdash.domain.profile import ProfileSummary
from sparkdash.natural import natural


def family_of(profile: ProfileSummary) -> str:
    """Return the name of the profile's base."""
    return profile.name.partition("/")[0]


def by_family(profiles: Iterable[ProfileSummary]) -> list[ProfileSummary]:
    """Sort by family in natural order, the base before its variants; families that cannot run come last."""
    listed = list(profiles)
    able = {family_of(profile) for profile in listed if profile.cannot_run is None}
    return sorted(
        listed,
        key=lambda one: (family_of(one) not in able, natural(family_of(one)), "/" in one.name, natural(one.name)),
    )
