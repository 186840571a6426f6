"""The link to a real daemon."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError
from sparkdash.tui.link import DaemonLink, Disconnected


async def test_the_link_follows_a_daemon_and_tells_when_it_dies(new_daemon: Callable[..., Any]) -> None:
    """A snapshot first; errors are the daemon's own; a kill is Disconnected, not an exception."""
    daemon = new_daemon(runtime="process").start()
    async with aclosing(DaemonLink(daemon.url)) as link, aclosing(link.feed()) as feed:
        first = await anext(feed)
        assert isinstance(first, Snapshot)
        assert first.profiles == ()
        await link.reload()
        with pytest.raises(AdmissionError) as refused:
            await link.plan("no-such-model")
        assert refused.value.code == "model_not_found"
        daemon.kill()
        async for item in feed:
            if isinstance(item, Disconnected):
                break
        assert isinstance(item, Disconnected)
