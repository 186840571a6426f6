"""The daemon's own few decisions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.daemon import errands
from sparkdash.errors import HostError


@pytest.mark.parametrize("stop_engines", [True, False])
async def test_the_daemon_ends_also_when_an_engine_will_not(stop_engines: bool) -> None:
    """Who asked for both ends is not left with a daemon that serves on as if nothing had been said."""
    told: list[str] = []

    async def stop(_profile: str | None) -> None:
        raise HostError("Process 7 does not end.", code="unkillable")

    supervisor, server = SimpleNamespace(stop=stop), SimpleNamespace(stop=lambda: told.append("stopped"))
    await errands.shutdown(cast("Any", SimpleNamespace(supervisor=supervisor, server=server)), stop_engines)
    assert told == ["stopped"]
