"""OwnerPolicy: the owner's settings as the scheduler takes them.

Owns: what a name in the settings means. Must not know what follows from them.
"""

from __future__ import annotations

from sparkdash.catalog import Catalog
from sparkdash.domain.event import Level
from sparkdash.domain.swap import DefaultProfile
from sparkdash.errors import SparkdashError
from sparkdash.settings import Settings
from sparkdash.supervisor.books import Books
from sparkdash.supervisor.scheduling.moves import Patience, PolicyRead


def policy_of(settings: Settings, catalog: Catalog, books: Books) -> PolicyRead:
    """Return the move that hands the settings to the scheduler, and publish the default profile.

    A default that is not there is told of, and counts as none.
    """
    default = None
    if settings.default is not None:
        try:
            profile = catalog.find(settings.default)
            default = DefaultProfile(profile=profile.name, after_s=settings.default_after_s)
        except SparkdashError as error:
            books.notice(Level.WARNING, error.code, f"`default` in config.toml: {error.text()}")
    books.set_default(default)
    return PolicyRead(Patience(settings.min_dwell_s, settings.max_wait_s), settings.queue_limit, default)
