"""Profiles that a client's word means, requests that are never worth a swap, and a profile's rules on the way."""

import json
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.settings import Settings

MESSAGES = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


async def test_a_mode_reaches_the_engine_under_its_own_name(house: Any) -> None:
    """The lease is asked for with the client's word, and the body says what the engine is called."""
    house.catalog.profiles["alpha"] = Profile(
        name="alpha", engine=EngineKind.VLLM, modes={"high": {"reasoning_effort": "high"}}
    )
    house.catalog.find = lambda _name: house.catalog.profiles["alpha"]  # type: ignore[method-assign]
    await house.client.post("/v1/chat/completions", json={"model": "alpha:high", "messages": []})
    assert json.loads(house.engine.seen[0].body) == {"model": "alpha", "messages": [], "reasoning_effort": "high"}
    assert house.supervisor.leases == ["alpha:high"]


@pytest.mark.parametrize("name", ["claude-haiku-4-5-20260101", "claude-4-haiku", "gpt-6-mini", "gpt-5-nano"])
async def test_small_models_of_the_cloud_mean_whatever_runs(house: Any, name: str) -> None:
    """Agents send background calls there; `auto` never swaps."""
    reply = await house.client.post("/v1/chat/completions", json={"model": name})
    assert reply.status_code == 200
    assert house.supervisor.leases == ["auto"]
    assert json.loads(house.engine.seen[0].body)["model"] == "alpha"


@pytest.mark.parametrize(("name", "leased"), [("claude-x", "beta/fast"), ("alpha", "alpha"), ("coder", "coder")])
async def test_patterns_are_for_unknown_names_only(house: Any, name: str, leased: str) -> None:
    """A profile's name and alias come first."""
    house.rebuild(settings=Settings(model_names={"claude-*": "beta/fast", "alph*": "beta/fast"}))
    await house.client.post("/v1/chat/completions", json={"model": name})
    assert house.supervisor.leases == [leased]


async def test_what_fits_no_pattern_is_unknown(house: Any) -> None:
    """404, also for the defaults that this owner did not keep."""
    house.rebuild(settings=Settings(model_names={"claude-*": "beta/fast", "alph*": "beta/fast"}))
    reply = await house.client.post("/v1/chat/completions", json={"model": "gpt-5-mini"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


async def test_counting_tokens_of_what_runs_is_the_engines_business(house: Any) -> None:
    """The request is relayed, for `auto` and small models too."""
    for name in ("alpha", "coder", "auto", "claude-haiku-9"):
        reply = await house.client.post("/v1/messages/count_tokens?beta=true", json={"model": name, **MESSAGES})
        assert reply.status_code == 200
    assert len(house.engine.seen) == 4


@pytest.mark.parametrize("state", [None, EngineState.LOADING, EngineState.FAILED, EngineState.DRAINING])
async def test_counting_tokens_loads_nothing(house: Any, tools: Any, state: EngineState | None) -> None:
    """A 404 in Anthropic's shape, on which Claude Code estimates by itself; nobody waits for an engine."""
    if state is not None:
        house.bus.publish(EngineChanged(engine=tools.ready("beta/fast", state)))
    reply = await house.client.post("/v1/messages/count_tokens", json={"model": "beta/fast", **MESSAGES})
    error = reply.json()
    assert (reply.status_code, error["type"], error["error"]["type"]) == (404, "error", "not_found_error")
    assert error["error"]["code"] == "not_loaded"
    assert house.supervisor.leases == []


async def test_a_fix_of_an_old_engine_goes_by_what_the_engine_tells(house: Any) -> None:
    """The engine's own version counts before the profile's word."""
    house.catalog.profiles["alpha"] = Profile(name="alpha", engine=EngineKind.VLLM, engine_version="0.22")
    body = {"model": "alpha", **MESSAGES, "context_management": {}}
    await house.client.post("/v1/messages", json=body)
    assert "context_management" not in json.loads(house.engine.seen[0].body)
