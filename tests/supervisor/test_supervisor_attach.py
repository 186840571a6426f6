"""Engines that are not ours: found at the address as it was written, and asked for the model by its own name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from surroundings.foreign import Foreign

from sparkdash.domain.engine import EngineState
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import EngineError
from sparkdash.store import Store

QWEN = {"id": "Qwen/Qwen3-30B"}
GLM = {"id": "zai/GLM-4.5-Air"}


@pytest.fixture
async def new_foreign() -> AsyncIterator[Callable[..., Awaitable[Foreign]]]:
    """Starts servers that are not ours; all are gone at the test's end."""
    made: list[Foreign] = []

    async def start(cards: list[dict[str, Any]] | None, **facts: Any) -> Foreign:
        made.append(Foreign(cards, **facts))
        return await made[-1].start()

    yield start
    for each in made:
        await each.end()


@pytest.fixture
def far(make_profile: Any) -> Callable[..., Any]:
    """A profile of a server that is not ours."""

    def make(url: str, **facts: Any) -> Any:
        return make_profile("far", engine="openai", image=None, gib=None, url=url, **{"models": {}, **facts})

    return make


async def refusal(house: Any, name: str) -> EngineError:
    """Why it is not leased."""
    (error,) = await house.clock.drive(asyncio.gather(house.ask(name).granted(), return_exceptions=True))
    assert isinstance(error, EngineError)
    return error


@pytest.mark.parametrize("written", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("prefix", ["", "/engines/one"])
async def test_a_url_may_end_with_v1_and_have_a_path(
    house: Any, new_foreign: Any, far: Any, prefix: str, written: str
) -> None:
    """The base URL that clients are given, the server's root, and both below a proxy's path are the same server."""
    server = await new_foreign([QWEN], prefix=prefix)
    await house.open(far(server.url + written))
    lease = await house.leased("far")
    assert lease.url == server.url
    assert lease.names == ("Qwen/Qwen3-30B",)
    assert house.supervisor.engines["far"].model_id == "Qwen/Qwen3-30B"


LORA = {"id": "sql", "parent": "Qwen/Qwen3-30B", "root": "/lora/sql"}


@pytest.mark.parametrize(
    ("cards", "facts", "name"),
    [
        ([QWEN], {}, "Qwen/Qwen3-30B"),
        ([QWEN, GLM], {"model_id": "zai/GLM-4.5-Air"}, "zai/GLM-4.5-Air"),
        ([QWEN], {"model_id": "unlisted"}, "unlisted"),
        ([QWEN, {"id": "far"}], {}, "far"),
        ([QWEN, {"id": "glm"}], {"serves": ("glm",)}, "glm"),
        ([QWEN, GLM], {"models": {"target": {"hf": "zai/GLM-4.5-Air"}}}, "zai/GLM-4.5-Air"),
        ([QWEN], {"models": {"target": {"hf": "somebody/else"}}}, "Qwen/Qwen3-30B"),
        ([{**QWEN, "root": "/models/qwen"}, {"id": "coder", "root": "/models/qwen"}], {}, "Qwen/Qwen3-30B"),
        ([{**QWEN, "parent": None, "root": "/models/qwen"}, LORA], {}, "Qwen/Qwen3-30B"),
        ([{**QWEN, "root": "/models/qwen"}, LORA], {"model_id": "sql"}, "sql"),
        ([], {}, "far"),
        (None, {"model_id": "tei"}, "tei"),
    ],
)
async def test_requests_are_sent_with_the_name_that_the_server_knows(
    house: Any, new_foreign: Any, far: Any, cards: Any, facts: dict[str, Any], name: str
) -> None:
    """`model_id`, else a listed name that the profile knows, else the only model; a server without a list is told what the profile knows."""
    server = await new_foreign(cards)
    await house.open(far(server.url, **facts))
    assert (await house.leased("far")).names == (name,)


async def test_several_models_are_named_and_one_is_asked_for(house: Any, new_foreign: Any, far: Any) -> None:
    """Which is meant is not guessed."""
    server = await new_foreign([QWEN, GLM])
    await house.open(far(server.url))
    error = await refusal(house, "far")
    assert error.code == "model_unclear"
    assert error.message == f"The server of far at {server.url} has 2 models: Qwen/Qwen3-30B, zai/GLM-4.5-Air."
    assert error.hint == "Write one of them as `model_id` in the profile."


async def test_a_server_without_a_list_wants_model_id(house: Any, new_foreign: Any, far: Any) -> None:
    """A name that nobody told would be a guess."""
    server = await new_foreign(None)
    await house.open(far(server.url))
    error = await refusal(house, "far")
    assert error.code == "model_unclear"
    assert "GET /v1/models answered 404" in error.message
    assert "`model_id`" in (error.hint or "")


async def test_a_server_that_wants_a_key_is_told_as_such(house: Any, new_foreign: Any, far: Any) -> None:
    """What can be done about it stands there."""
    server = await new_foreign([QWEN])
    server.list_status = 401
    await house.open(far(server.url))
    error = await refusal(house, "far")
    assert error.code == "engine_unreachable"
    assert "/v1/models answered 401" in error.message
    assert "`engine: remote`" in (error.hint or "")


async def test_a_server_that_has_no_list_is_there_all_the_same(house: Any, new_foreign: Any, far: Any) -> None:
    """Its 404 is an answer: it is not taken for gone."""
    server = await new_foreign(None)
    await house.open(far(server.url, model_id="tei"))
    await house.leased("far")
    for _ in range(4):
        house.clock.step()
        await house.clock.rest()
    assert house.state("far") is EngineState.READY


async def test_another_model_at_the_same_address_is_asked_for_by_its_own_name(
    house: Any, new_foreign: Any, far: Any
) -> None:
    """The server was restarted with another model: the name is asked for whenever it is reached anew."""
    server = await new_foreign([QWEN])
    await house.open(far(server.url))
    await house.leased("far")
    await house.supervisor.stop("far")
    server.cards = [GLM]
    assert (await house.leased("far")).names == ("zai/GLM-4.5-Air",)


async def test_a_server_in_use_comes_back_with_the_next_daemon(
    house: Any, new_foreign: Any, far: Any, tmp_path: Path
) -> None:
    """After an end and after a SIGKILL: ready and watched before anybody asks; its model is asked for anew."""
    server = await new_foreign([QWEN])
    ends = (house.close, house.crash)
    for end in ends:
        async with Store.opened(tmp_path / "store.db", lambda _: None) as store:
            await house.open(far(server.url), store=store)
            await house.leased("far")
            await end()
        server.cards = [GLM]
        async with Store.opened(tmp_path / "store.db", lambda _: None) as store:
            await house.open(far(server.url), store=store)
            engine = house.supervisor.engines["far"]
            assert (engine.state, engine.adopted, engine.model_id) == (EngineState.READY, True, "zai/GLM-4.5-Air")
            assert (await house.leased("auto")).profile.name == "far"
            assert house.swaps()[1:] == []
            await house.supervisor.stop("far")
            await house.close()
        house.facts.clear()
        server.cards = [QWEN]


@pytest.mark.parametrize("why", ["stopped", "edited", "gone"])
async def test_a_server_that_is_not_used_does_not_come_back(
    house: Any, new_foreign: Any, far: Any, tmp_path: Path, why: str
) -> None:
    """A person gave it up, its profile was edited, or nothing answers there, which is told."""
    server = await new_foreign([QWEN])
    async with Store.opened(tmp_path / "store.db", lambda _: None) as store:
        await house.open(far(server.url), store=store)
        await house.leased("far")
        if why == "stopped":
            await house.supervisor.stop("far")
        await house.close()
    if why == "gone":
        await server.end()
    house.facts.clear()
    async with Store.opened(tmp_path / "store.db", lambda _: None) as store:
        await house.open(far(server.url, **({"model_id": "other"} if why == "edited" else {})), store=store)
        assert house.supervisor.engines == {}
        told = [notice.text for notice in house.notices()]
        assert len(told) == (why == "gone")
        if why == "gone":
            assert "the next request that names it uses it again" in told[0]
        await house.close()


@pytest.mark.parametrize("order", ["cancel", "go on"])
async def test_a_newer_file_that_leads_nowhere_leaves_no_engine_behind(
    house: Any, new_foreign: Any, far: Any, make_catalog: Any, unused_tcp_port: int, order: str
) -> None:
    """The server of the older file has left for it; the next request is told why, and with a better file it is served."""
    server = await new_foreign([QWEN])
    supervisor = await house.open(far(server.url))
    await house.leased("far")
    supervisor.replace_catalog(make_catalog(far(f"http://127.0.0.1:{unused_tcp_port}")))
    await house.settled()
    await supervisor.use("far", cause=SwapCause.USER)
    if order == "cancel":
        await house.clock.drive(supervisor.cancel())
    await house.settled()
    assert (await refusal(house, "far")).code == "engine_unreachable"
    supervisor.replace_catalog(make_catalog(far(server.url)))
    assert (await house.leased("far")).url == server.url


async def test_a_profile_that_is_edited_and_taken_away_at_once_ends_nothing(
    house: Any, new_foreign: Any, make_profile: Any, make_catalog: Any
) -> None:
    """Who waits for it could begin by the first edit, and by the second it is gone; the load that it waited for goes on."""
    server = await new_foreign([QWEN])
    first, second = make_profile("a"), make_profile("b")
    supervisor = await house.open(first, second)
    coming, waits = house.ask("a"), house.ask("b")
    await house.loads("a")
    edited = make_profile("b", engine="openai", image=None, gib=None, models={}, url=server.url)
    supervisor.replace_catalog(make_catalog(first, edited))
    supervisor.replace_catalog(make_catalog(first))
    await house.clock.drive(coming.granted())
    (error,) = await asyncio.gather(house.clock.drive(waits.granted()), return_exceptions=True)
    assert error.code == "model_not_found"
    await coming.leave()
