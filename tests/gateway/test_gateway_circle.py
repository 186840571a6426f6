"""A request that leads back to its gateway, over a profile whose `url` is the gateway itself or another that asks it."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import EngineError
from sparkdash.settings import Settings
from sparkdash.supervisor.swap.attach import attach_server

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/embeddings")


def points_to(house: Any, name: str, url: str, kind: EngineKind) -> None:
    house.catalog.profiles[name] = Profile(name=name, engine=kind, url=url)
    house.supervisor.url = url
    house.supervisor.container = None


@pytest.mark.parametrize("kind", [EngineKind.OPENAI, EngineKind.REMOTE])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_profile_that_is_the_gateway_itself_is_found_out_at_once(
    house: Any, kind: EngineKind, path: str, stream: bool
) -> None:
    """After one turn, with the profile's name, and with a status that no client repeats."""
    points_to(house, "mirror", f"{house.base}/v1" if kind is EngineKind.REMOTE else house.base, kind)
    body = {"model": "mirror", "messages": [], "stream": stream, "max_tokens": 1, "input": "x"}
    reply = await house.client.post(path, json=body)
    assert (reply.status_code, house.supervisor.leases) == (508, ["mirror"])
    assert "mirror" in reply.json()["error"]["message"]
    assert reply.json()["error"]["code"] == "loop_detected"
    assert reply.headers["x-should-retry"] == "false"


async def test_two_gateways_that_name_each_other_are_both_named(house: Any, engine: Any, tools: Any) -> None:
    """The first one hears that its request came back, over which profiles."""
    async with tools.living_house(engine, Settings()) as other:
        points_to(house, "there", other.base, EngineKind.OPENAI)
        points_to(other, "back", house.base, EngineKind.OPENAI)
        house.supervisor.names, other.supervisor.names = ("back",), ("there",)
        reply = await house.client.post("/v1/chat/completions", json={"model": "there", "messages": []})
        assert (reply.status_code, house.supervisor.leases, other.supervisor.leases) == (508, ["there"], ["back"])
        assert "there → back" in reply.json()["error"]["message"]


async def test_a_chain_of_gateways_is_no_circle(house: Any, engine: Any, tools: Any) -> None:
    """The second one's engine answers; an engine in a container of ours is not told of the way."""
    async with tools.living_house(engine, Settings()) as other:
        points_to(house, "there", other.base, EngineKind.OPENAI)
        house.supervisor.names = ("alpha",)
        reply = await house.client.post("/v1/chat/completions", json={"model": "there", "messages": []})
        assert (reply.status_code, other.supervisor.leases) == (200, ["alpha"])
    house.supervisor.url = engine.url
    await house.client.post("/v1/chat/completions", json={"model": "alpha", "messages": []})
    assert "x-sparkdash-via" not in engine.seen[-1].headers


async def test_the_gateway_itself_is_not_attached_as_an_engine() -> None:
    """Before anything is asked of it: it would answer as a server of models."""
    profile = Profile(name="mirror", engine=EngineKind.OPENAI, url="http://127.0.0.1:8484")
    tools: Any = SimpleNamespace(settings=Settings(port=8484), adapter=adapter_of)
    with pytest.raises(EngineError, match="mirror names this gateway itself") as caught:
        await attach_server(tools, profile)
    assert caught.value.code == "loop_detected"
