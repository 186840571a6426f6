"""Several engines of one profile behind one name: where a conversation goes, and where it goes next."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import engine_on_a_socket

from sparkdash.catalog import Catalog
from sparkdash.catalog.catalog import with_replicas
from sparkdash.daemon.build import kept_homes
from sparkdash.domain.engine import EngineState, Liveness, LivenessState
from sparkdash.domain.event import EngineChanged, ProfilesChanged
from sparkdash.domain.node import LOCAL
from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission.access import permitted_name
from sparkdash.gateway.protocol.replicas import BUSIER, ReplicaChoice, conversation_in
from sparkdash.keyring import Key
from sparkdash.settings import Settings

NAMES = ("alpha", "alpha@b", "alpha@c", "alpha@d")
AGENTS = [f"agent {number}" for number in range(20)]

words = st.text(min_size=1, max_size=12)


# --- the choice ----------------------------------------------------------------------------------------------------


@given(st.sets(words, min_size=20, max_size=60), st.integers(2, 8))
def test_new_conversations_are_spread_within_a_third_of_even(conversations: set[str], count: int) -> None:
    names, choice = [f"replica {number}" for number in range(count)], ReplicaChoice()
    found = Counter(choice.choose(each, names) for each in conversations)
    assert max(found.values()) <= max(1.3 * len(conversations) / count, len(conversations) // count + 1)


@given(st.lists(st.sampled_from(AGENTS), min_size=1, max_size=200))
def test_a_conversation_stays_where_it_is_whoever_comes_between(turns: list[str]) -> None:
    choice, homes = ReplicaChoice(), dict[str, str]()
    for each in turns:
        assert choice.choose(each, NAMES) == homes.setdefault(each, choice.choose(each, NAMES))


@given(st.sampled_from(NAMES))
def test_only_the_conversations_of_a_replica_that_goes_move_and_none_moves_when_it_is_back(gone: str) -> None:
    choice = ReplicaChoice()
    before = {each: choice.choose(each, NAMES) for each in AGENTS}
    left = [name for name in NAMES if name != gone]
    after = {each: choice.choose(each, left) for each in AGENTS}
    assert gone not in after.values()
    assert {each for each in AGENTS if after[each] != before[each]} == {e for e in AGENTS if before[e] == gone}
    assert {each: choice.choose(each, NAMES) for each in AGENTS} == after


async def test_conversations_are_where_they_were_after_a_restart_in_whatever_order_they_come(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    async with kept_homes(file) as choice:
        before = {each: choice.choose(each, NAMES) for each in AGENTS}
    async with kept_homes(file) as choice:
        assert {each: choice.choose(each, NAMES) for each in reversed(AGENTS)} == before
        assert max(Counter(choice.homes.values()).values()) <= 1.3 * len(AGENTS) / len(NAMES)
        assert choice.choose("new", NAMES) in NAMES
    file.write_text("[1]")
    async with kept_homes(file) as choice:
        assert not choice.homes


def test_a_conversation_leaves_a_replica_that_is_much_busier_and_stays_with_the_least_busy() -> None:
    choice = ReplicaChoice()
    home = choice.choose("mine", NAMES)
    idle = next(name for name in NAMES if name != home)
    choice.running.update({name: 1 for name in NAMES if name != idle})
    choice.running[home] = BUSIER
    assert choice.choose("mine", NAMES) == home
    choice.running[home] = BUSIER + 1
    assert choice.choose("mine", NAMES) == idle
    choice.running.clear()
    assert choice.choose("mine", NAMES) == idle


def _turns(*texts: str) -> list[dict[str, str]]:
    return [
        {"role": role, "content": text}
        for role, text in zip(("system", "user", "assistant", "user"), texts, strict=False)
    ]


@pytest.mark.parametrize(
    ("first", "later", "other"),
    [
        (
            {"messages": _turns("you code", "hello")},
            {"messages": _turns("you code", "hello", "hi", "go on")},
            {"messages": _turns("you code", "good day")},
        ),
        (
            {"instructions": "be short", "input": "hello"},
            {"instructions": "be short", "input": "hello", "temperature": 1},
            {"instructions": "be long", "input": "hello"},
        ),
        (
            {"system": "one", "messages": _turns("", "hello")[1:]},
            {"system": "one", "messages": _turns("", "hello", "hi")[1:]},
            {"system": "two", "messages": _turns("", "hello")[1:]},
        ),
        (
            {"prompt_cache_key": "k", "input": "a"},
            {"prompt_cache_key": "k", "input": "b"},
            {"prompt_cache_key": "l", "input": "a"},
        ),
    ],
    ids=["chat", "responses", "messages", "key"],
)
def test_a_conversation_is_known_by_its_key_or_its_beginning(
    first: dict[str, Any], later: dict[str, Any], other: dict[str, Any]
) -> None:
    name, again, another = (conversation_in(json.dumps(each).encode()) for each in (first, later, other))
    assert name is not None
    assert name == again != another


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b"{}", b'{"messages": []}'])
def test_a_body_that_tells_nothing_names_no_conversation(body: bytes) -> None:
    assert conversation_in(body) is None


# --- over HTTP -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def four_engines(house: Any, tools: SimpleNamespace, ready: int = 4) -> AsyncIterator[dict[str, Any]]:
    """Four fake engines of `alpha`, each at its own port; `ready` of them run."""
    plain = Catalog({"alpha": house.catalog.profiles["alpha"].replace(replicas=4)})
    house.catalog.profiles |= with_replicas(plain, (LOCAL, "b", "c", "d")).profiles
    house.bus.publish(ProfilesChanged(profiles=house.catalog.summaries(), problems=()))
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(engine_on_a_socket()) for name in NAMES}
        house.supervisor.url_of = {name: engine.url for name, engine in engines.items()}
        for name in NAMES[:ready]:
            house.bus.publish(EngineChanged(engine=tools.ready(name)))
        yield engines


async def _ask(house: Any, agent: str) -> None:
    turn = {"messages": _turns("you are an agent", agent)}
    assert (await house.chat(**turn)).status_code == 200


def _agents(engine: Any) -> set[str]:
    return {json.loads(each.body)["messages"][1]["content"] for each in engine.seen}


async def test_each_of_twenty_sessions_stays_on_one_engine_and_moves_only_when_it_dies(
    house: Any, tools: SimpleNamespace
) -> None:
    async with four_engines(house, tools) as engines:
        for _turn in range(5):
            await asyncio.gather(*(_ask(house, agent) for agent in AGENTS))
        homes = {name: _agents(engine) for name, engine in engines.items()}
        assert sum(map(len, homes.values())) == len(AGENTS)  # none was on two engines
        assert max(map(len, homes.values())) <= 1.3 * len(AGENTS) / len(NAMES)

        house.supervisor.errors["alpha@c"] = AdmissionError("The node c is silent.", code="node_unreachable")
        for engine in engines.values():
            engine.seen.clear()
        await asyncio.gather(*(_ask(house, agent) for agent in AGENTS))
        after = {name: _agents(engine) for name, engine in engines.items()}
        assert after["alpha@c"] == set()
        assert set().union(*after.values()) == set(AGENTS)
        assert all(homes[name] <= after[name] for name in NAMES if name != "alpha@c")

        house.bus.publish(EngineChanged(engine=tools.ready("alpha@c", EngineState.ABSENT)))
        house.supervisor.leases.clear()
        await asyncio.gather(*(_ask(house, agent) for agent in AGENTS))
        assert {name: _agents(engine) for name, engine in engines.items()} == after


async def test_a_replica_that_is_stuck_gets_no_conversation(house: Any, tools: SimpleNamespace) -> None:
    async with four_engines(house, tools) as engines:
        stuck = Liveness(state=LivenessState.STUCK, since=0.0)
        house.bus.publish(EngineChanged(engine=tools.ready("alpha@b").replace(liveness=stuck)))
        for agent in AGENTS:
            await _ask(house, agent)
        assert engines["alpha@b"].seen == []


async def test_a_request_that_shares_its_engine_has_the_absent_ones_come(house: Any, tools: SimpleNamespace) -> None:
    async with four_engines(house, tools, ready=1):
        supervisor = house.supervisor
        supervisor.errors = dict.fromkeys(NAMES[1:], AdmissionError("Not yet.", code="autocomplete_not_ready"))
        supervisor.gate.clear()
        first = asyncio.create_task(_ask(house, "first"))
        await supervisor.arrived.wait()
        assert supervisor.leases == ["alpha"]
        second = asyncio.create_task(_ask(house, "second"))
        await house.until(lambda snapshot: len(snapshot.requests) == 2)
        supervisor.gate.set()
        await asyncio.gather(first, second)
        asked = [(name, asks["autocomplete"]) for name, asks in zip(supervisor.leases, supervisor.asks, strict=True)]
        assert asked == [("alpha", False), *((name, True) for name in NAMES[1:]), ("alpha", False)]


async def test_clients_see_and_may_use_one_name(house: Any, tools: SimpleNamespace) -> None:
    async with four_engines(house, tools):
        listed = (await house.client.get("/v1/models")).json()["data"]
        assert [each["id"] for each in listed if each["id"].startswith("alpha")] == ["alpha"]
        named = await house.client.post("/v1/chat/completions", json={"model": "alpha@d", "messages": []})
        assert named.status_code == 200
        assert house.supervisor.leases == ["alpha@d"]
        key = Key(name="k", sha256="0" * 64, models=("alpha",))
        assert permitted_name(key, "alpha@d", house.catalog, lambda: house.bus.snapshot) == "alpha@d"
        assert Settings(policy={"alpha": {"pinned": True}}).policy_of("alpha@d").pinned
