"""Names: which profile a client's word for a model means, before anybody waits for one.

Owns: words that no profile has and that stand for another, and calls that are never worth a swap. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from sparkdash.domain.engine import EngineState
from sparkdash.domain.profile import AUTO, Profile
from sparkdash.domain.state import Snapshot
from sparkdash.errors import SparkdashError
from sparkdash.gateway.ports import CatalogPort
from sparkdash.gateway.relay.remote import is_remote

COUNT_TOKENS = "/v1/messages/count_tokens"
"""A call that is never worth a swap: agents count in the background, 25 at once."""


def resolve_model(name: str, catalog: CatalogPort, stand_ins: Mapping[str, str]) -> tuple[str, Profile | None]:
    """What to ask the supervisor for, and the profile of that name: the word itself when a profile has it, else what it
    stands for, if anything."""
    profile = find_profile(name, catalog)
    if profile is not None or name == AUTO:
        return name, profile
    other = next((other for pattern, other in stand_ins.items() if fnmatchcase(name, pattern)), name)
    return other, find_profile(other, catalog)


def find_profile(name: str, catalog: CatalogPort) -> Profile | None:
    """The profile of that name; None for `auto` and where there is none."""
    if name == AUTO:
        return None
    try:
        return catalog.find(name)
    except SparkdashError:
        return None


def profile_to_count_offline(name: str, catalog: CatalogPort, snapshot: Snapshot) -> Profile | None:
    """The profile that a call in the background is for, if its engine does not run and is not for us to ask.

    What is read here may be old by the time the lease is asked for; then one swap more is made, and nothing is wrong.

    Raises:
        AdmissionError: as `find` does.
    """
    if name == AUTO:
        return None
    profile = catalog.find(name)
    if is_remote(profile):
        return None  # nothing is loaded for it, and it says itself whether it can count
    engine = snapshot.engines.get(profile.name)
    return None if engine is not None and engine.state is EngineState.READY else profile
