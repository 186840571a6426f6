"""Raw paths, and requests that came to the wrong door."""

from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.gateway.relay import admitted
from sparkdash.upstream.client import ERROR_TEXT_LIMIT


async def test_a_raw_request_reaches_the_named_engine_unchanged(house: Any) -> None:
    """No default, no name, no fix: the body is the client's, whatever model it names and whether it is JSON at all."""
    body = b'{"model": "whatever", "stream": true, "messages": [] }'
    reply = await house.client.post("/upstream/beta/fast/v1/chat/completions?a=1", content=body)
    odd = await house.client.post(
        "/upstream/coder/v1/thing", content=b"{", headers={"content-type": "application/json"}
    )
    assert (reply.status_code, odd.status_code) == (200, 200)
    assert [(seen.target, seen.body) for seen in house.engine.seen] == [
        ("/v1/chat/completions?a=1", body),
        ("/v1/thing", b"{"),
    ]
    assert house.supervisor.leases == ["beta/fast", "coder"]


async def test_reading_raw_loads_nothing(house: Any) -> None:
    assert (await house.client.get("/upstream/alpha/version")).status_code == 200
    refused = await house.client.get("/upstream/beta%2Ffast/version")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_loaded")
    assert house.supervisor.leases == ["alpha"]


@pytest.mark.parametrize("path", [
    "/upstream/alpha/sleep", "/upstream/alpha//Sleep?level=1", "/upstream/alpha/%73leep",
    "/upstream/alpha/flush_cache", "/upstream/alpha/v1/load_lora_adapter", "/upstream/alpha/slots/0?action=erase",
    "/upstream/alpha/../alpha/sleep", "/upstream/nope/v1/models", "/upstream/alpha", "/upstream/",
    "/v1/load_lora_adapter",
])  # fmt: skip
async def test_an_engines_owners_paths_are_not_for_clients(house: Any, path: str) -> None:
    """Neither raw nor under /v1, however they are spelled."""
    reply = await house.client.post(path, json={})
    assert (reply.status_code, reply.json()["error"]["src"]) == (404, "sparkdash")
    assert house.engine.seen == []


async def test_props_of_an_engine_are_not_set(house: Any) -> None:
    """llama.cpp's POST /props changes it for everybody."""
    assert (await house.client.post("/upstream/alpha/props", json={})).status_code == 405


async def test_a_responses_request_at_the_chat_door_is_told_so(house: Any) -> None:
    reply = await house.client.post("/v1/chat/completions", json={"model": "beta/fast", "input": "x"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "wrong_protocol")
    assert "/v1/responses" in reply.json()["error"]["message"]
    assert house.supervisor.leases == []


KEY = "sk-far-0123456789abcdef"


@pytest.mark.parametrize("before", [0, ERROR_TEXT_LIMIT - 10], ids=["whole", "cut in the middle"])
def test_a_key_that_a_service_repeats_is_masked(before: int) -> None:
    """Also where the words are shortened."""
    profile = Profile(name="cloud", engine=EngineKind.REMOTE, url="https://far.example/v1", model_id="m", key_env="FAR")
    told = admitted.remote_refusal(profile, 401, b"x" * before + KEY.encode(), {"Authorization": f"Bearer {KEY}"}, None)
    assert KEY[:6] not in told.text()
    assert "***" in told.text()
