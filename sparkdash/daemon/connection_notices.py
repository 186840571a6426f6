"""Notices when the limit of connections is reached.

Owns: the notice's text and the log line. Must not know how connections are counted.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from sparkdash.domain.event import Level, Notice
from sparkdash.wire import Crowding

LOG = structlog.get_logger("sparkdash")
_MEND = "Raise the limit of open files: `LimitNOFILE=` of the service, or `ulimit -n` before `sparkdash serve`."


def publish_notice(publish: Callable[[Notice], object], met: Crowding) -> None:
    """Publish a notice about the reached limit, and log it."""
    LOG.warning(
        "the limit of connections is met",
        most=met.most,
        closed_idle=met.closed,
        refused=met.refused,
        client=met.address,
    )
    publish(Notice(level=Level.WARNING, code="connections_full", text=notice_text(met)))


def notice_text(met: Crowding) -> str:
    """Text of the notice: the limit, which connections were closed or refused, and what to do."""
    closed = f"{met.closed} idle {_connections(met.closed)} closed for new clients" if met.closed else ""
    refused = f"{met.refused} new {_connections(met.refused)} refused" if met.refused else ""
    done = " and ".join(filter(None, (closed, refused)))
    if met.address is not None:
        return f"{met.address} uses half of the {met.most} connections, the most for one address: {done}."
    return f"{met.most} connections are open, as many as the limit of open files allows: {done}. {_MEND}"


def _connections(number: int) -> str:
    return "connection was" if number == 1 else "connections were"
