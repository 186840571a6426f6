"""Model names: which profile a client's word for a model means.

Owns: words that stand for a profile's name, and calls that are never worth a swap.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType

from sparkdash.catalog.catalog import Catalog
from sparkdash.domain.engine import EngineState
from sparkdash.domain.profile import AUTO, Profile
from sparkdash.domain.state import Snapshot
from sparkdash.errors import SparkdashError
from sparkdash.gateway.relay.remote import is_remote

Choices = Mapping[str, Sequence[str]]
"""Profiles by the name that means one of them."""
NO_CHOICES: Choices = MappingProxyType({})
_RUNS = frozenset({EngineState.READY})
_COMES = frozenset({EngineState.CREATING, EngineState.LOADING, EngineState.WARMING})
COUNT_TOKENS = "/v1/messages/count_tokens"
"""Path of a call that is never worth a swap: agents count in the background, 25 at once."""


def resolve_model(
    name: str,
    catalog: Catalog,
    stand_ins: Mapping[str, str],
    choices: Choices = NO_CHOICES,
    state: Callable[[], Snapshot] | None = None,
    may_use: Callable[[Profile], bool] = lambda _: True,
) -> tuple[str, Profile | None]:
    """Resolve a client's word: return the name for the supervisor, and its profile.

    A profile's own name wins over a name for several, and that one over a stand-in pattern of the settings. `choices`:
    names that mean one of several profiles, of which only those that `may_use` count. `state` is read for such a name
    alone: each reading adds up what was published since the last one.
    """
    profile = find_profile(name, catalog)
    if profile is not None or name == AUTO:
        return name, profile
    other = name
    if name not in choices:
        other = next((other for pattern, other in stand_ins.items() if fnmatchcase(name, pattern)), name)
    if other in choices and state is not None and catalog.exactly(other) is None:
        other = _chosen(choices[other], catalog, state(), may_use)
    return other, find_profile(other, catalog)


def _chosen(words: Sequence[str], catalog: Catalog, snapshot: Snapshot, may_use: Callable[[Profile], bool]) -> str:
    """Return the name of the profile that a name for several means now; the first one where none can run."""
    found = [each for word in words if (each := find_profile(word, catalog)) and may_use(each)]
    return chosen_name([each.name for each in found if not each.cannot_run], snapshot) or words[0]


def meant_profile(name: str, catalog: Catalog, choices: Choices, state: Callable[[], Snapshot]) -> str:
    """Return the profile that an owner means: of a name for several the one that runs, else the first that can."""
    return resolve_model(name, catalog, {}, choices, state)[0]


def chosen_name(names: Sequence[str], snapshot: Snapshot) -> str | None:
    """Choose of several profiles: the first that runs, else the first that comes, else the first; None of none."""
    states = [engine.state if (engine := snapshot.engines.get(name)) else None for name in names]
    for wanted in (_RUNS, _COMES):
        if found := next((name for name, state in zip(names, states, strict=True) if state in wanted), None):
            return found
    return next(iter(names), None)


def find_profile(name: str, catalog: Catalog) -> Profile | None:
    """Find the profile of that name; None for `auto` and for an unknown name."""
    if name == AUTO:
        return None
    try:
        return catalog.find(name)
    except SparkdashError:
        return None


def profile_to_count_offline(name: str, catalog: Catalog, snapshot: Snapshot) -> Profile | None:
    """Find the profile whose tokens must be counted without its engine; None if the engine runs or is remote.

    The state may be old by the time of the lease; then one more swap is made, and nothing is wrong.

    Raises:
        AdmissionError: as `find` does.
    """
    if name == AUTO:
        return None
    profile = catalog.find(name)
    if is_remote(profile):
        return None  # needs no load, and tells itself whether it can count
    engine = snapshot.engines.get(profile.name)
    return None if engine is not None and engine.state is EngineState.READY else profile
