"""The catalog as clients see it."""

from typing import Any

import pytest

from sparkdash.domain.engine import EngineState, Failure
from sparkdash.domain.event import EngineChanged, ProfilesChanged
from sparkdash.gateway.apis import models

pytestmark = pytest.mark.usefixtures("anthropic_sdk")


async def test_an_item_satisfies_every_kind_of_client(house: Any) -> None:
    """vLLM's, OpenRouter's and llama.cpp's keys all tell the configured context; status is llama.cpp's word."""
    item = (await house.client.get("/v1/models/alpha")).json()
    assert (item["id"], item["object"], item["owned_by"], item["root"]) == ("alpha", "model", "sparkdash", "alpha")
    assert item["max_model_len"] == item["context_length"] == item["meta"]["n_ctx"] == 32768
    assert item["architecture"]["input_modalities"] == ["text"]
    assert item["status"] == {"value": "loaded"}
    assert item["created"] == 1000


async def test_a_model_that_reads_pictures_says_so_to_every_kind_of_client(house: Any) -> None:
    """Zed (the list) and VS Code (Ollama's capabilities) send none to a model that does not; unknown is no yes."""
    listed = house.catalog.summaries()
    for sees in (True, False, None):
        profiles = tuple(each.model_copy(update={"sees": sees}) for each in listed)
        house.bus.publish(ProfilesChanged(profiles=profiles, problems=()))
        item = (await house.client.get("/v1/models/alpha")).json()
        shown = (await house.client.post("/api/show", json={"model": "alpha"})).json()
        assert item["architecture"]["input_modalities"] == (["text", "image"] if sees else ["text"])
        assert ("vision" in shown["capabilities"]) is bool(sees)


async def test_the_list_and_its_items_are_anthropics_too(house: Any) -> None:
    """To its SDK's own types, read strictly; all models are on one page."""
    import anthropic

    async with anthropic.AsyncAnthropic(base_url=house.base, api_key="x", _strict_response_validation=True) as sdk:
        listed = [model.id async for model in sdk.models.list(limit=1)]
        one = await sdk.models.retrieve("beta/fast")
    assert listed == ["alpha", "coder", "beta/fast", "auto"]
    assert (one.type, one.display_name, one.lifecycle) == ("model", "beta/fast", "active")


async def test_claude_code_finds_every_profile_in_its_picker(house: Any) -> None:
    """Claude Code drops names without claude or anthropic; nobody else is shown such names, and all are understood."""
    told = (await house.client.get("/v1/models?limit=1000", headers={"user-agent": "claude-code/2.1.329"})).json()[
        "data"
    ]
    shown = {item["id"]: item["display_name"] for item in told if "claude" in item["id"]}
    assert shown == {"claude-local/alpha": "alpha", "claude-local/beta/fast": "beta/fast"}
    for name, model in (("claude-local/beta/fast", "beta/fast"), ("claude-local/alpha", "alpha")):
        await house.client.post("/v1/messages", json={"model": name, "messages": []})
        assert house.recorded[-1].profile == model
    listed = (await house.client.get("/v1/models")).json()["data"]
    assert not any("claude" in item["id"] for item in listed)


async def test_profiles_that_are_not_loaded_are_listed_too(house: Any) -> None:
    """The running one first, aliases after their profile, `auto` last; what cannot run is left out; unknown is absent."""
    listing = (await house.client.get("/v1/models?limit=1000")).json()
    items = {item["id"]: item for item in listing["data"]}
    assert (listing["object"], list(items)) == ("list", ["alpha", "coder", "beta/fast", "auto"])
    assert items["coder"]["root"] == "alpha"
    assert items["beta/fast"]["status"] == {"value": "unloaded"}
    assert not {"max_model_len", "context_length", "meta"} & items["beta/fast"].keys()
    assert (items["auto"]["root"], items["auto"]["max_model_len"]) == ("alpha", 32768)


async def test_status_follows_the_engine(house: Any, tools: Any) -> None:
    said = []
    for state in (EngineState.CREATING, EngineState.WARMING, EngineState.STOPPING, EngineState.FAILED):
        engine = tools.ready("beta/fast", state)
        failure = Failure(code="out_of_memory", message="m", exit_code=137)
        house.bus.publish(EngineChanged(engine=engine.model_copy(update={"failure": failure})))
        said.append((await house.client.get("/v1/models/beta/fast")).json()["status"])
    failed = {"value": "unloaded", "failed": True, "exit_code": 137}
    assert said == [{"value": "loading"}, {"value": "loading"}, {"value": "unloaded"}, failed]


async def test_a_simulated_model_says_so(house: Any) -> None:
    """Once; a bench that measures it by this gateway's URL knows it by nothing else."""
    snapshot = house.bus.snapshot
    profile = snapshot.profile("alpha").model_copy(update={"simulated": True, "about": "a coder"})
    for told in (profile, profile.model_copy(update={"about": "SIMULATED: a coder"})):
        assert models.model_item(snapshot, told, "alpha")["description"] == "SIMULATED: a coder"


async def test_auto_without_an_engine(house: Any, tools: Any) -> None:
    house.bus.publish(EngineChanged(engine=tools.ready("alpha", EngineState.ABSENT)))
    item = (await house.client.get("/v1/models/auto")).json()
    assert (item["status"], item["root"], "meta" in item) == ({"value": "unloaded"}, "auto", False)


async def test_spellings_and_refusals(house: Any) -> None:
    for path in ("/v1/models/beta/fast", "/v1/models/beta%2Ffast", "/models/beta/fast", "/v1/models/"):
        assert (await house.client.get(path)).status_code == 200
    missing = await house.client.get("/v1/models/nope")
    huge = await house.client.get("/v1/models/huge")
    assert [missing.status_code, huge.status_code] == [404, 404]
    assert "needs two boxes" in huge.json()["error"]["message"]
    assert (await house.client.delete("/v1/models/alpha")).status_code == 405
    assert house.supervisor.leases == []
