"""Engines that an earlier daemon left: adopted when the catalog has them and they answer, else put away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.foreign import Foreign
from surroundings.house import make_catalog, make_profile

from sparkdash.catalog import ProfileProblem
from sparkdash.domain.container import (
    LABEL_OWNER,
    LABEL_PROFILE,
    ContainerInfo,
    ContainerState,
    ForeignContainer,
    Leftovers,
)
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import UnadoptedChanged
from sparkdash.domain.swap import SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import DaemonError, EngineError
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor.swap.adopt import as_foreign


async def test_a_node_that_answers_during_the_first_look_costs_no_engine_that_loads(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = house.runtime.zoo["a"] = Behaviour(never_ready=True, heartbeat=True)
    await house.open(make_profile("a"))
    await house.crash_in_load("a")
    list_containers, looks = house.runtime.containers, []

    async def listed_late(labels: Any) -> list[ContainerInfo]:
        found = await list_containers(labels)
        looks.append(labels)
        if len(looks) == 1:
            house.supervisor.node_returned()
            await house.clock.steps(5)
        return list(found)

    monkeypatch.setattr(house.runtime, "containers", listed_late)
    await house.open(make_profile("a"))
    await house.clock.steps(5)
    assert house.state("a") is EngineState.LOADING
    loads.never_ready = False
    await house.settled()
    assert (house.state("a"), house.runtime.calls) == (EngineState.READY, [("start", "a")])
    assert house.notices() == []
    assert len(looks) > 1


@pytest.mark.parametrize("state", [ContainerState.CREATED, ContainerState.EXITED])
async def test_a_container_that_is_started_during_a_look_is_left_alone(
    house: Any, state: ContainerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.open(make_profile("a"))
    list_containers, listed = house.runtime.containers, []

    async def listed_meanwhile(labels: Any) -> list[ContainerInfo]:
        if not house.runtime.here:
            house.ask("a")
            await house.clock.steps(5)
            listed[:] = [each.replace(state=state) for each in await list_containers(labels)]
        return listed

    monkeypatch.setattr(house.runtime, "containers", listed_meanwhile)
    house.supervisor.node_returned()
    await house.clock.steps(10)
    await house.settled()
    assert [each.name for each in listed] == ["sparkdash-a"]
    assert (house.state("a"), house.runtime.calls) == (EngineState.READY, [("start", "a")])
    assert house.notices() == []


QWEN = {"id": "Qwen/Qwen3-30B"}
GLM = {"id": "zai/GLM-4.5-Air"}


def far(url: str, **facts: Any) -> Any:
    return make_profile("far", engine="openai", image=None, gib=None, url=url, **{"models": {}, **facts})


@pytest.fixture
async def attach(house: Any) -> AsyncIterator[Callable[..., Awaitable[Foreign]]]:
    """Starts the server of the profile `far`, which is not ours, and opens the house; the server ends with the test."""
    made: list[Foreign] = []

    async def start(cards: list[dict[str, Any]] | None, *, prefix: str = "", end: str = "", **facts: Any) -> Foreign:
        made.append(await Foreign(cards, prefix=prefix).start())
        await house.open(far(made[-1].url + end, **facts))
        return made[-1]

    yield start
    for each in made:
        await each.end()


async def refusal(house: Any) -> EngineError:
    error = await house.clock.drive(house.ask("far").refusal())
    assert isinstance(error, EngineError)
    return error


@pytest.mark.parametrize("written", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("prefix", ["", "/engines/one"])
async def test_a_url_may_end_with_v1_and_have_a_path(house: Any, attach: Any, prefix: str, written: str) -> None:
    server = await attach([QWEN], prefix=prefix, end=written)
    lease = await house.leased("far")
    assert (lease.url, lease.names) == (server.url, ("Qwen/Qwen3-30B",))
    assert house.supervisor.engines["far"].model_id == "Qwen/Qwen3-30B"


LORA = {"id": "sql", "parent": "Qwen/Qwen3-30B", "root": "/lora/sql"}


@pytest.mark.parametrize(("cards", "facts", "name"), [
    ([QWEN], {}, "Qwen/Qwen3-30B"), ([QWEN, GLM], {"model_id": "zai/GLM-4.5-Air"}, "zai/GLM-4.5-Air"),
    ([QWEN], {"model_id": "unlisted"}, "unlisted"), ([QWEN, {"id": "far"}], {}, "far"),
    ([QWEN, {"id": "glm"}], {"serves": ("glm",)}, "glm"),
    ([QWEN, GLM], {"models": {"target": {"hf": "zai/GLM-4.5-Air"}}}, "zai/GLM-4.5-Air"),
    ([QWEN], {"models": {"target": {"hf": "somebody/else"}}}, "Qwen/Qwen3-30B"),
    ([{**QWEN, "root": "/models/qwen"}, {"id": "coder", "root": "/models/qwen"}], {}, "Qwen/Qwen3-30B"),
    ([{**QWEN, "parent": None, "root": "/models/qwen"}, LORA], {}, "Qwen/Qwen3-30B"),
    ([{**QWEN, "root": "/models/qwen"}, LORA], {"model_id": "sql"}, "sql"), ([], {}, "far"),
    (None, {"model_id": "tei"}, "tei"),
])  # fmt: skip
async def test_requests_are_sent_with_the_name_that_the_server_knows(
    house: Any, attach: Any, cards: Any, facts: dict[str, Any], name: str
) -> None:
    await attach(cards, **facts)
    assert (await house.leased("far")).names == (name,)
    await house.clock.steps(4)
    assert house.state("far") is EngineState.READY, "a 404 for its list is an answer"


@pytest.mark.parametrize(("cards", "status", "code", "said", "hint"), [
    ([QWEN, GLM], 200, "model_unclear", "has 2 models: Qwen/Qwen3-30B, zai/GLM-4.5-Air.",
     "`model_id` in the profile"),
    (None, 200, "model_unclear", "GET /v1/models answered 404", "`model_id`"),
    ([QWEN], 401, "engine_unreachable", "/v1/models answered 401", "`engine: remote`"),
], ids=["several models", "no list", "a key is wanted"])  # fmt: skip
async def test_a_server_whose_model_is_not_clear_is_told_with_what_to_write(
    house: Any, attach: Any, cards: Any, status: int, code: str, said: str, hint: str
) -> None:
    server = await attach(cards)
    server.list_status = status
    error = await refusal(house)
    assert error.code == code
    assert said in error.message
    assert hint in (error.hint or "")


async def test_a_slow_list_of_a_server_at_work_is_no_reason_to_give_it_up(
    house: Any, attach: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was frozen for 20 s, or computed a long prompt, had its waiting requests refused."""
    monkeypatch.setattr("sparkdash.supervisor.probe.PROBE_S", 0.05)
    server = await attach([QWEN])
    request, _ = await house.granted("far")
    server.hangs = True
    await house.clock.steps(8)
    assert house.state("far") is EngineState.READY
    await request.leave()
    await house.clock.steps(8)
    assert house.state("far") is EngineState.FAILED


async def test_another_model_at_the_same_address_is_asked_for_by_its_own_name(house: Any, attach: Any) -> None:
    server = await attach([QWEN])
    await house.leased("far")
    await house.supervisor.stop("far")
    server.cards = [GLM]
    assert (await house.leased("far")).names == ("zai/GLM-4.5-Air",)


async def test_a_server_in_use_comes_back_with_the_next_daemon(house: Any, attach: Any, tmp_path: Path) -> None:
    server = await attach([QWEN])
    for end in (house.close, house.crash):
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
async def test_a_server_that_is_not_used_does_not_come_back(house: Any, attach: Any, tmp_path: Path, why: str) -> None:
    server = await attach([QWEN])
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


async def test_a_server_that_came_back_serves_again_within_seconds(house: Any, attach: Any) -> None:
    server = await attach([QWEN])
    await server.end()
    for _ in range(3):
        error = await refusal(house)
        assert (error.code, error.status, error.retry_after) == ("engine_unreachable", 503, 2.0)
        assert "sparkdash use" not in error.text()
        house.clock.time += 5
    assert len(house.swaps()) == 1, "asking again is no swap"
    await server.start()
    await refusal(house)
    await house.clock.rest()
    assert (await house.leased("far")).url == server.url


@pytest.mark.parametrize("order", ["cancel", "go on"])
async def test_a_newer_file_that_leads_nowhere_leaves_no_engine_behind(
    house: Any, attach: Any, unused_tcp_port: int, order: str
) -> None:
    server = await attach([QWEN])
    supervisor = house.supervisor
    await house.leased("far")
    supervisor.replace_catalog(make_catalog(far(f"http://127.0.0.1:{unused_tcp_port}")))
    await house.settled()
    await supervisor.use("far", cause=SwapCause.USER)
    if order == "cancel":
        await house.clock.drive(supervisor.cancel())
    await house.settled()
    assert (await refusal(house)).code == "engine_unreachable"
    supervisor.replace_catalog(make_catalog(far(server.url)))
    assert (await house.leased("far")).url == server.url


async def test_a_profile_that_is_edited_and_taken_away_at_once_ends_nothing(house: Any, attach: Any) -> None:
    server = await attach([QWEN])
    first, second = make_profile("a"), make_profile("b")
    supervisor = await house.open(first, second)
    coming, waits = house.ask("a"), house.ask("b")
    await house.loads("a")
    edited = far(server.url).replace(name="b")
    supervisor.replace_catalog(make_catalog(first, edited))
    supervisor.replace_catalog(make_catalog(first))
    await house.clock.drive(coming.granted())
    error = await house.clock.drive(waits.refusal())
    assert error.code == "model_not_found"


SETTINGS = Settings(port=8484, engine_ports=(18000, 18999))


def container(**facts: Any) -> ContainerInfo:
    return ContainerInfo(**{"id": "1", "name": "comfy", "image": "comfyui:1", "state": ContainerState.RUNNING, **facts})


@pytest.mark.parametrize(("facts", "shown"), [
    ({"gpu": True}, ForeignContainer(name="comfy", image="comfyui:1", gpu=True)),
    ({"labels": {LABEL_PROFILE: "a", LABEL_OWNER: "other"}}, ForeignContainer(name="comfy", image="comfyui:1")),
    ({"ports": (80, 8484, 18999)}, ForeignContainer(name="comfy", image="comfyui:1", ports=(8484, 18999))),
    ({"ports": (80,)}, None), ({"gpu": True, "state": ContainerState.EXITED}, None),
    ({"gpu": True, "labels": {LABEL_OWNER: "me"}}, None),
])  # fmt: skip
def test_who_takes_of_what_our_engines_need(facts: dict[str, Any], shown: ForeignContainer | None) -> None:
    assert as_foreign(container(**facts), "me", SETTINGS) == shown


async def test_a_running_engine_is_adopted_and_serves_without_a_start(house: Any) -> None:
    await house.served(make_profile("a"))
    await house.open(make_profile("a"))
    engine = house.supervisor.engines["a"]
    assert (engine.state, engine.adopted, engine.load_s) == (EngineState.READY, True, None)
    assert (await house.leased("a")).url == engine.url
    assert (await house.leased("auto")).profile.name == "a"
    assert house.runtime.calls == [("start", "a")]
    assert [line async for line in house.supervisor.logs("a")] != []
    await house.runtime.kill("a", "Segmentation fault")
    await house.clock.rest()
    assert house.state("a") is EngineState.FAILED


async def test_an_engine_of_a_changed_profile_is_stopped_with_a_notice(house: Any) -> None:
    await house.served(make_profile("a"))
    await house.open(make_profile("a", args={"max-model-len": 4096}))
    assert house.runtime.here == {}
    assert house.supervisor.engines == {}
    assert [n.code for n in house.notices()] == ["not_adopted"]
    assert "changed" in house.notices()[0].text


BROKEN = ProfileProblem("a.yaml", 3, "", "it is not valid YAML")
A, B = make_profile("a", gib=30), make_profile("b", gib=30)


@pytest.fixture
async def unadopted(house: Any) -> Any:
    """A house where `a` runs, and its profile's file has a mistake in it."""
    await house.served(A, B)
    await house.close()
    house.facts.clear()
    await house.open(B, problems=(BROKEN,))
    assert (house.runtime.running(), house.supervisor.engines) == (["a"], {})
    return house


@pytest.mark.parametrize("fixed", [True, False])
async def test_an_engine_whose_profile_cannot_be_read_is_left_until_that_is_known(unadopted: Any, fixed: bool) -> None:
    house = unadopted
    house.supervisor.replace_catalog(make_catalog(B, problems=(BROKEN, BROKEN)))
    await house.leased("b")
    await house.clock.steps(40)
    assert sorted(house.runtime.running()) == ["a", "b"]
    assert [n.code for n in house.notices()] == ["not_adopted_yet"]
    assert "a.yaml:3: it is not valid YAML" in house.notices()[0].text
    house.supervisor.replace_catalog(make_catalog(A, B) if fixed else make_catalog(B))
    await house.clock.until(lambda: house.state("a") is not None or "a" not in house.runtime.running())
    assert house.runtime.calls[:2] == [("start", "a"), ("start", "b")]
    assert (house.state("a"), house.state("b")) == (EngineState.READY if fixed else None, EngineState.READY)
    assert [n.code for n in house.notices()][1:] == ([] if fixed else ["not_adopted"])


@pytest.mark.parametrize("named", [True, False])
async def test_an_engine_whose_profile_cannot_be_read_can_be_stopped(unadopted: Any, named: bool) -> None:
    house = unadopted
    assert [fact.profiles for fact in house.facts if isinstance(fact, UnadoptedChanged)] == [("a",)]
    await house.leased("b")
    await house.stopped("a" if named else None)
    assert house.runtime.running() == (["b"] if named else [])
    assert [fact.profiles for fact in house.facts if isinstance(fact, UnadoptedChanged)] == [("a",), ()]
    assert house.notices()[-1].text == "sparkdash-a was running and has been stopped: it was to be stopped."


async def test_a_daemon_that_ends_with_its_engines_ends_those_that_it_could_not_adopt(unadopted: Any) -> None:
    house = unadopted
    await house.close()
    await house.supervisor.close(stop_engines=True)
    assert house.runtime.here == {}


async def test_an_engine_that_was_up_and_does_not_answer_is_stopped_with_a_notice(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(lines=("INFO:     Application startup complete.",))
    await house.served(make_profile("a"))
    await house.close()
    await house.runtime.of("a").server.cleanup()
    await house.open(make_profile("a"))
    assert house.runtime.here == {}
    assert "does not answer" in house.notices()[0].text


async def test_all_that_were_loading_are_gone_on_with(house: Any) -> None:
    house.runtime.zoo.update(a=Behaviour(load_s=15), b=Behaviour(load_s=15))
    profiles = [make_profile(name, gib=30, args={"kv-cache-memory-bytes": "1G"}) for name in "ab"]
    await house.open(*profiles)
    await house.loading("a")
    asking = await house.crash_in_load("b")
    assert isinstance((await asyncio.gather(asking.granted(), return_exceptions=True))[0], DaemonError)
    await house.open(*profiles)
    assert house.state("b") is EngineState.LOADING
    assert (await house.leased("b")).engine.adopted
    await house.clock.until(lambda: len(house.swaps()) == 2)  # on a busy machine b may be ready before a is asked
    await house.settled()
    assert house.runtime.calls == [("start", "a"), ("start", "b")]
    ended = sorted((swap.target, swap.cause, swap.outcome, *swap.stage_s) for swap in house.swaps())
    whole = (SwapCause.ADOPT, SwapOutcome.DONE, SwapPhase.LOAD, SwapPhase.WARM)
    assert ended == [("a", *whole), ("b", *whole)]
    assert [line async for line in house.supervisor.logs("b")] != []
    await house.runtime.kill("b", "Segmentation fault")
    await house.clock.rest()
    assert house.state("b") is EngineState.FAILED


async def test_what_was_loading_gives_way_to_what_a_person_wants(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(never_ready=True)
    await house.open(make_profile("a"), make_profile("b"))
    await house.crash_in_load("a")
    await house.open(make_profile("a"), make_profile("b"))
    await house.used("b")
    assert house.runtime.running() == ["b"]
    assert house.swaps()[-2].outcome is SwapOutcome.CANCELLED


async def test_an_engine_that_answers_and_cannot_generate_is_not_adopted_as_ready(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(empty_answers=True, load_s=1)
    await house.open(make_profile("a"))
    await house.crash_in_load("a")
    await house.clock.until(lambda: house.runtime.of("a").server)
    await house.open(make_profile("a"))
    await house.settled()
    assert house.swaps()[-1].failure.code == "bad_answer"
    assert house.runtime.here == {}


async def test_strays_of_an_earlier_daemon_are_told(house: Any) -> None:
    house.runtime.stray = Leftovers(ended=(4711,))
    await house.open(make_profile("a"))
    assert [notice.code for notice in house.notices()] == ["orphan_ended"]
    assert "orphan pid 4711" in house.notices()[0].text


async def test_ended_leftovers_are_removed_without_a_word(house: Any) -> None:
    await house.served(make_profile("a"))
    await house.close()
    await house.runtime.end(house.runtime.of("a"), 0)
    await house.open(make_profile("a"))
    assert house.runtime.here == {}
    assert house.notices() == []


async def test_containers_of_others_are_left_alone(house: Any) -> None:
    await house.served(make_profile("a"))
    await house.close()
    container = house.runtime.of("a")
    container.spec = container.spec.replace(labels={**container.spec.labels, LABEL_OWNER: "someone else"})
    await house.open(make_profile("a"))
    await house.clock.rest()
    assert container.state is ContainerState.RUNNING
    assert house.supervisor.engines == {}
    assert list(await house.supervisor.foreign_containers()) == [ForeignContainer(name="sparkdash-a", image="image")]


async def test_a_runtime_that_does_not_tell_is_asked_again(house: Any) -> None:
    await house.served(make_profile("a", gib=30), make_profile("b", gib=30))
    await house.close()
    house.runtime.missing = True
    await house.open(make_profile("a", gib=30), make_profile("b", gib=30))
    assert [n.code for n in house.notices()] == ["runtime_missing"]
    house.runtime.missing = False
    await house.leased("b")
    await house.clock.until(lambda: house.state("a"))
    engines = house.supervisor.engines
    assert {name: engine.adopted for name, engine in engines.items()} == {"a": True, "b": False}
    assert {engine.state for engine in engines.values()} == {EngineState.READY}
    assert house.runtime.calls == [("start", "a"), ("start", "b")]
