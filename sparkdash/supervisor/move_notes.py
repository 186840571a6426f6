"""Move notes: what people see of a death, a stop or a removed file before the scheduler handles it.

Owns: the engine's published state and notice then, and the step of its incident. Must not know what follows.
"""

from __future__ import annotations

from collections.abc import Container

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.books import Books, failure_of
from sparkdash.supervisor.memory import guard_words
from sparkdash.supervisor.repair.incidents import Incidents


def publish_death(books: Books, incidents: Incidents, profile: str, error: SparkdashError) -> None:
    """Show the engine as failed, with a notice."""
    incidents.ends(profile)
    if started := books.started.get(profile):  # otherwise it died during its stop, and is gone
        books.fail(started, failure_of(error))
        if error.code not in guard_words.CODES:  # the guard's kills have a notice already
            books.notice(Level.ERROR, error.code, error.text(), profile)


def publish_stop(books: Books, incidents: Incidents, profile: str | None, residents: Container[str]) -> None:
    """Close the incidents, and drop the failed engines, of what a person stops; None: of every profile."""
    incidents.stopped(profile)
    for engine in list(books.engines.values()):
        stopped = profile in (None, engine.profile) and engine.profile not in residents
        if stopped and engine.state is EngineState.FAILED:
            books.drop(engine.profile)


def forget_failures(books: Books, incidents: Incidents, profiles: Container[str], residents: Container[str]) -> None:
    """Drop failed engines whose profiles are gone: nobody can start or stop them."""
    for engine in list(books.engines.values()):
        if engine.state is EngineState.FAILED and engine.profile not in profiles and engine.profile not in residents:
            publish_stop(books, incidents, engine.profile, residents)
