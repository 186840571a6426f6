"""What both clients do alike: where the daemon is, how long it may say nothing, how its frames are read.

Must not know: which of the two asks.
"""

from __future__ import annotations

from pathlib import Path

from sparkdash.client.address import Address, at_socket, at_url, find
from sparkdash.client.envelope import error_of, understood
from sparkdash.domain.container import PullProgress
from sparkdash.domain.event import EVENT, Event
from sparkdash.domain.state import Snapshot
from sparkdash.sse import Frame

HEALTH_S = 5.0
"""A daemon's loop answers at once; another program that holds its port may never."""
STREAM_S = None
"""A log or a pull may be silent for as long as it likes."""
FEED_S = 45.0
"""The feed says something every 15 s: three missed comments are a dead link."""


def address(url: str | None, uds: Path | None) -> Address:
    """Where the daemon is: as told, or as `address.find` says."""
    if uds is not None:
        return at_socket(uds)
    return find() if url is None else at_url(url)


def pulled(frame: Frame, at: Address) -> PullProgress:
    """One frame of a pull. Raises SparkdashError: the one it carries."""
    if frame.name == "error":
        raise error_of(503, frame.data.encode(), at)
    with understood(at):
        return PullProgress.model_validate_json(frame.data)


def item(frame: Frame, at: Address) -> Snapshot | Event | None:
    """One frame of the feed; None for what is neither."""
    with understood(at):
        if frame.name == "snapshot":
            return Snapshot.model_validate_json(frame.data)
        return EVENT.validate_json(frame.data) if frame.name == "fact" else None
