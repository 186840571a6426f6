"""Names that mean one of several profiles: `[any]` in config.toml."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import ROUTE_PATHS
from sparkdash.errors import AdmissionError
from sparkdash.gateway.protocol.route import find_route
from sparkdash.gateway.relay.admitted import refuse_unserved, server_path
from sparkdash.keyring import Key, Keyring, add_key, digest, new_secret

CHOICES = {
    "either": ("beta/fast", "alpha"),
    "gone": ("nothing", "huge", "alpha"),
    "alpha": ("beta/fast",),
    "none": ("huge",),
}


@pytest.fixture
def chosen(house: Any) -> Any:
    house.rebuild(choices=lambda: CHOICES)
    return house


async def asked(house: Any, model: str, **headers: str) -> Any:
    reply = await house.client.post("/v1/chat/completions", json={"model": model, "messages": []}, headers=headers)
    return reply, house.supervisor.leases[-1] if house.supervisor.leases else None


@pytest.mark.parametrize(("name", "alpha", "taken"), [
    ("either", EngineState.READY, "alpha"), ("either", EngineState.LOADING, "alpha"),
    ("either", EngineState.ABSENT, "beta/fast"), ("gone", EngineState.ABSENT, "alpha"),
    ("alpha", EngineState.READY, "alpha"),
])  # fmt: skip
async def test_what_runs_or_loads_is_taken_else_the_first_that_can(
    chosen: Any, tools: Any, name: str, alpha: EngineState, taken: str
) -> None:
    """A profile's own name wins."""
    chosen.bus.publish(EngineChanged(engine=tools.ready("alpha", alpha)))
    assert (await asked(chosen, name))[1] == taken


async def test_a_key_gets_only_its_own_of_them(chosen: Any, tmp_path: Path) -> None:
    secret = new_secret()
    add_key(tmp_path / "keys.json", Key(name="k", sha256=digest(secret), models=("beta/fast",)))
    chosen.rebuild(keys=Keyring(tmp_path / "keys.json"))
    assert (await asked(chosen, "either", authorization=f"Bearer {secret}"))[1] == "beta/fast"
    reply = await chosen.client.get("/v1/models", headers={"authorization": f"Bearer {secret}"})
    found = {item["id"]: item.get("root") for item in reply.json()["data"]}
    assert found["either"] == "beta/fast"
    assert "gone" not in found


async def test_the_list_of_models_has_them(chosen: Any) -> None:
    found = {item["id"]: item for item in (await chosen.client.get("/v1/models")).json()["data"]}
    assert (found["either"]["root"], found["either"]["status"]) == ("alpha", {"value": "loaded"})
    assert found["either"]["description"] == "whichever of beta/fast, alpha runs, else beta/fast"
    assert "none" not in found
    one = (await chosen.client.get("/v1/models/either")).json()
    assert (one["id"], one["root"]) == ("either", "alpha")


async def test_an_owner_may_plan_and_use_such_a_name(chosen: Any, tools: Any) -> None:
    """As a request does: what runs, else the first."""
    plan = await chosen.client.get("/api/plan/either")
    assert plan.json()["profile"] == "alpha"
    chosen.bus.publish(EngineChanged(engine=tools.ready("alpha", EngineState.ABSENT)))
    begun = await chosen.client.post("/api/use", json={"profile": "either"})
    assert (begun.status_code, begun.json()["profile"]) == (202, "beta/fast")
    unknown = await chosen.client.post("/api/use", json={"profile": "neither"})
    assert unknown.status_code == 404


def profile(engine: str = "generic", **server: Any) -> Profile:
    return Profile.model_validate({"name": "p", "engine": engine, "server": {"port": 1, **server}})


CHATS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/anything", "/props")
OTHERS = ("/v1/embeddings", "/rerank", "/v1/images/edits", "/v1/audio/speech", "/v1/completions")


@pytest.mark.parametrize(("made", "path", "refused"), [
    *((profile(), path, False) for path in CHATS), *((profile(), path, True) for path in OTHERS),
    (profile(routes=["embeddings"]), "/v1/messages", True),
    *((profile("vllm"), path, False) for path in ROUTE_PATHS.values()),
])  # fmt: skip
def test_a_chat_server_takes_chats_what_can_be_translated_and_paths_of_its_own(
    made: Profile, path: str, refused: bool
) -> None:
    """Paths that are no route of OpenAI's are left to the server; other engines tell by themselves what they serve."""
    route = find_route(path)
    assert route is not None
    with pytest.raises(AdmissionError) if refused else nullcontext() as caught:
        refuse_unserved(made, route)
    assert caught is None or (caught.value.code, caught.value.status) == ("route_not_served", 404)


def test_the_server_s_own_path_stands_for_every_spelling() -> None:
    made = profile(routes=["rerank"], paths={"rerank": "/rank"})
    paths = {"/v1/rerank": "/rank", "/rerank": "/rank", "/v1/other": "/v1/other"}
    assert {path: server_path(made, path) for path in paths} == paths
