"""Work and memory for a request grow no faster than the request, whatever in it is large."""

from __future__ import annotations

import time
from typing import Any

import pytest


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_slashes_after_an_engines_name_cost_nothing(house: Any, method: str) -> None:
    """3,000 of them once held everybody up for 40 s, and a page's picture can ask for them without a key."""
    began = time.process_time()
    for slashes in (400, 3000):
        reply = await house.client.request(method, "/upstream/nobody" + "/" * slashes, json={})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert time.process_time() - began < 2


async def test_slashes_in_a_name_cost_nothing(house: Any) -> None:
    """90,000 of them once took 100 s and 5.5 GB."""
    began = time.process_time()
    reply = await house.client.post("/api/show", json={"model": "a/" * 90_000})
    assert reply.status_code == 404
    assert time.process_time() - began < 2
