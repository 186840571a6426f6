"""Screens of browsers' tabs that end with their test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture
async def ended_screens(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    begin, screens = asyncio.create_subprocess_shell, []

    async def begun(*words: Any, **how: Any) -> asyncio.subprocess.Process:
        screens.append(await begin(*words, **how))
        return screens[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_shell", begun)
    yield
    for screen in screens:
        assert screen.stdin is not None
        screen.stdin.close()
        await asyncio.wait_for(screen.wait(), 60)
        screen._transport.close()  # type: ignore[attr-defined]
    await asyncio.sleep(0)  # the loop closes the pipes in its next turn
