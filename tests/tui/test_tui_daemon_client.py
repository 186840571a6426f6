"""The client of a real daemon."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from sparkdash.domain.node import Status
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError
from sparkdash.tui.daemon_client import DaemonClient
from sparkdash.tui.mirror import Disconnected


async def test_the_client_follows_a_daemon_and_tells_when_it_dies(new_daemon: Callable[..., Any]) -> None:
    """A snapshot first; errors are the daemon's own; a kill is Disconnected, not an exception."""
    daemon = new_daemon(runtime="process").start()
    async with aclosing(DaemonClient(daemon.url)) as client, aclosing(client.feed()) as feed:
        first = await anext(feed)
        assert isinstance(first, Snapshot)
        assert first.profiles == ()
        assert (await client.inventory()).stock == {}
        await client.reload()
        with pytest.raises(AdmissionError) as refused:
            await client.plan(name="no-such-model")
        assert refused.value.code == "model_not_found"
        daemon.kill()
        async for item in feed:
            if isinstance(item, Disconnected):
                break
        assert isinstance(item, Disconnected)


async def test_the_doctor_examines_the_daemons_own_box(new_daemon: Callable[..., Any]) -> None:
    """Every check answers, and knows the daemon that it is asked through."""
    daemon = new_daemon(runtime="process").start()
    async with aclosing(DaemonClient(daemon.url)) as client:
        found = {one.name: one for one in (await client.doctor()).findings}
    assert found["daemon"].status is Status.OK
    assert f"serves {daemon.url}/v1 with process" in found["daemon"].evidence
    assert [one for one in found.values() if "check itself failed" in one.evidence] == []
    status, body = daemon.call("GET", "/api/doctor?check=swap&check=vm")
    assert (status, [one["name"] for one in body["findings"]]) == (200, ["swap", "vm"])
    status, body = daemon.call("GET", "/api/doctor?check=swapp")
    assert (status, body["error"]["code"]) == (400, "check_not_found")
