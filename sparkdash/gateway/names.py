"""Names: which profile a client's word for a model means, before anybody waits for one.

Owns: words that no profile has and that stand for another, and calls that are never worth a swap. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from sparkdash.domain.engine import EngineState
from sparkdash.domain.profile import AUTO
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.deps import Catalog
from sparkdash.gateway.far import is_far
from sparkdash.gateway.route import Route

COUNT_TOKENS = "/v1/messages/count_tokens"


def meant(name: str, catalog: Catalog, stand_ins: Mapping[str, str]) -> str:
    """What to ask the supervisor for: the word itself when a profile has it, else what it stands for, if anything."""
    if name == AUTO or _is_known(name, catalog):
        return name
    return next((other for pattern, other in stand_ins.items() if fnmatchcase(name, pattern)), name)


def _is_known(name: str, catalog: Catalog) -> bool:
    try:
        catalog.find(name)
    except SparkdashError:
        return False
    return True


def is_background(route: Route) -> bool:
    """Is it a call that is never worth a swap? Counting tokens is one: agents count in the background, 25 at once."""
    return route.path == COUNT_TOKENS


def refuse_in_background(name: str, catalog: Catalog, snapshot: Snapshot) -> None:
    """A call in the background goes to an engine that runs, or to none.

    An estimate would pass for a count, so there is none: Claude Code makes its own when it gets a 404. What is read
    here may be old by the time the lease is asked for; then one swap more is made, and nothing is wrong.

    Raises:
        AdmissionError: code `not_loaded`, status 404: its engine does not run.
    """
    if name == AUTO:
        return
    found = catalog.find(name)
    if is_far(found):
        return  # nothing is loaded for it, and it says itself whether it can count
    profile = found.name
    engine = snapshot.engines.get(profile)
    if engine is None or engine.state is not EngineState.READY:
        raise AdmissionError(
            f"{profile} is not loaded, and only its engine can count its tokens.",
            code="not_loaded",
            status=404,
            hint="Send it a message, or start it with `sparkdash use`; counting alone loads nothing.",
        )
