"""What an earlier daemon left running: adopted when it is what the catalog says and answers, else put away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparkdash.catalog import ProfileProblem
from sparkdash.domain.container import ContainerState, Leftovers
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level, UnadoptedChanged
from sparkdash.domain.swap import SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import DaemonError


async def test_a_running_engine_is_adopted_and_serves_without_a_start(house: Any, make_profile: Any) -> None:
    """The daemon ends, another begins: the same container, ready, watched."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
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


async def test_an_engine_of_a_changed_profile_is_stopped_with_a_notice(house: Any, make_profile: Any) -> None:
    """Its fingerprint tells: it would serve something else than the file says."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    await house.open(make_profile("a", args={"max-model-len": 4096}))
    assert house.runtime.here == {}
    assert house.supervisor.engines == {}
    assert [n.code for n in house.notices()] == ["not_adopted"]
    assert "changed" in house.notices()[0].text


BROKEN = ProfileProblem("a.yaml", 3, "", "it is not valid YAML")


@pytest.mark.parametrize("mended", [True, False])
async def test_an_engine_whose_profile_cannot_be_read_is_left_until_that_is_known(
    house: Any, make_profile: Any, make_catalog: Any, mended: bool
) -> None:
    """A slip of the keyboard before the daemon starts anew costs nobody an engine; told once, however often files are read."""
    a, b = make_profile("a", gib=30), make_profile("b", gib=30)
    await house.open(a, b)
    await house.leased("a")
    await house.close()
    house.facts.clear()
    await house.open(b, problems=(BROKEN,))
    assert (house.runtime.running(), house.supervisor.engines) == (["a"], {})
    house.supervisor.replace_catalog(make_catalog(b, problems=(BROKEN, BROKEN)))
    await house.leased("b")
    for _ in range(40):
        house.clock.step()
        await house.clock.rest()
    assert sorted(house.runtime.running()) == ["a", "b"]
    assert [n.code for n in house.notices()] == ["not_adopted_yet"]
    assert "a.yaml:3: it is not valid YAML" in house.notices()[0].text
    house.supervisor.replace_catalog(make_catalog(a, b) if mended else make_catalog(b))
    while house.state("a") is None and "a" in house.runtime.running():
        house.clock.step()
        await house.clock.rest()
    assert house.runtime.calls[:2] == [("start", "a"), ("start", "b")]
    assert (house.state("a"), house.state("b")) == (EngineState.READY if mended else None, EngineState.READY)
    assert [n.code for n in house.notices()][1:] == ([] if mended else ["not_adopted"])


@pytest.fixture
async def unadopted(house: Any, make_profile: Any) -> Any:
    """A house where `a` runs, and its profile's file has a mistake in it."""
    a, b = make_profile("a", gib=30), make_profile("b", gib=30)
    await house.open(a, b)
    await house.leased("a")
    await house.close()
    house.facts.clear()
    await house.open(b, problems=(BROKEN,))
    return house


@pytest.mark.parametrize("named", [True, False])
async def test_an_engine_whose_profile_cannot_be_read_can_be_stopped(unadopted: Any, named: bool) -> None:
    """By its profile's name and with all others; it is shown as long as it is there."""
    house = unadopted
    assert [fact.profiles for fact in house.facts if isinstance(fact, UnadoptedChanged)] == [("a",)]
    await house.leased("b")
    await house.clock.drive(house.supervisor.stop("a" if named else None))
    assert house.runtime.running() == (["b"] if named else [])
    assert [fact.profiles for fact in house.facts if isinstance(fact, UnadoptedChanged)] == [("a",), ()]
    assert house.notices()[-1].text == "sparkdash-a was running and has been stopped: it was to be stopped."


async def test_a_daemon_that_ends_with_its_engines_ends_those_that_it_could_not_adopt(unadopted: Any) -> None:
    """`sparkdash stop --daemon --all` leaves nothing."""
    house = unadopted
    await house.close()
    await house.supervisor.close(stop_engines=True)
    assert house.runtime.here == {}


async def test_an_engine_that_was_up_and_does_not_answer_is_stopped_with_a_notice(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """Its log says that it served: it hangs, and loading is not what it does."""
    house.runtime.zoo["a"] = behaviour(lines=("INFO:     Application startup complete.",))
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    await house.runtime.of("a").server.cleanup()
    await house.open(make_profile("a"))
    assert house.runtime.here == {}
    assert "does not answer" in house.notices()[0].text


async def test_an_engine_that_was_loading_is_gone_on_with(house: Any, make_profile: Any, behaviour: Any) -> None:
    """Minutes of loading are not thrown away: the same container, from load to ready, and those who ask meanwhile wait for it."""
    house.runtime.zoo["a"] = behaviour(load_s=15)
    await house.open(make_profile("a"))
    asking = house.ask("a")
    await house.loads("a")
    await house.crash()
    assert isinstance((await asyncio.gather(asking.granted(), return_exceptions=True))[0], DaemonError)
    await house.open(make_profile("a"))
    assert house.state("a") is EngineState.LOADING
    lease = await house.leased("a")
    assert lease.engine.adopted
    assert house.runtime.calls == [("start", "a")]
    swap = house.swaps()[-1]
    assert (swap.cause, swap.outcome, list(swap.stage_s)) == (
        SwapCause.ADOPT,
        SwapOutcome.DONE,
        [SwapPhase.LOAD, SwapPhase.WARM],
    )
    assert [line async for line in house.supervisor.logs("a")] != []
    await house.runtime.kill("a", "Segmentation fault")
    await house.clock.rest()
    assert house.state("a") is EngineState.FAILED


async def test_an_engine_that_was_loading_and_stands_still_is_given_up(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """The same limit as for a load of one's own; nothing is left."""
    house.runtime.zoo["a"] = behaviour(never_ready=True)
    await house.open(make_profile("a"), no_progress_s=20)
    house.ask("a")
    await house.loads("a")
    await house.crash()
    await house.open(make_profile("a"), no_progress_s=20)
    await house.settled()
    assert house.swaps()[-1].failure.code == "no_progress"
    assert house.runtime.here == {}


async def test_what_was_loading_gives_way_to_what_a_person_wants(house: Any, make_profile: Any, behaviour: Any) -> None:
    """As any load that no request waits for."""
    house.runtime.zoo["a"] = behaviour(never_ready=True)
    await house.open(make_profile("a"), make_profile("b"))
    house.ask("a")
    await house.loads("a")
    await house.crash()
    await house.open(make_profile("a"), make_profile("b"))
    await house.supervisor.use("b", cause=SwapCause.USER)
    await house.settled()
    assert house.runtime.running() == ["b"]
    assert house.swaps()[-2].outcome is SwapOutcome.CANCELLED


async def test_an_engine_that_answers_and_cannot_generate_is_not_adopted_as_ready(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """Killed while it warmed, or broken: it is warmed as any other, and fails as any other."""
    house.runtime.zoo["a"] = behaviour(empty_answers=True, load_s=1)
    await house.open(make_profile("a"))
    house.ask("a")
    await house.loads("a")
    await house.crash()
    while house.runtime.of("a").server is None:
        house.clock.step()
        await house.clock.rest()
    await house.open(make_profile("a"))
    await house.settled()
    assert house.swaps()[-1].failure.code == "bad_answer"
    assert house.runtime.here == {}


async def test_strays_of_an_earlier_daemon_are_told(house: Any, make_profile: Any) -> None:
    """Processes that no container holds any more were ended by the runtime."""
    house.runtime.stray = Leftovers(ended=(4711,))
    await house.open(make_profile("a"))
    assert [notice.code for notice in house.notices()] == ["orphan_ended"]
    assert "orphan pid 4711" in house.notices()[0].text


async def test_ended_leftovers_are_removed_without_a_word(house: Any, make_profile: Any) -> None:
    """An exited container of ours is rubbish, not news."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    await house.runtime.end(house.runtime.of("a"), 0)
    await house.open(make_profile("a"))
    assert house.runtime.here == {}
    assert house.notices() == []


async def test_containers_of_others_are_left_alone(house: Any, make_profile: Any, foreign_owner: Any) -> None:
    """Another daemon's engine, same profile and all, is not ours to touch."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    container = house.runtime.of("a")
    container.spec = container.spec.model_copy(update={"labels": {**container.spec.labels, **foreign_owner}})
    await house.open(make_profile("a"))
    await house.clock.rest()
    assert container.state is ContainerState.RUNNING
    assert house.supervisor.engines == {}
    (notice,) = house.notices()
    assert (notice.code, notice.level) == ("foreign_container", Level.INFO)
    assert "sparkdash-a (image)" in notice.text


async def test_of_two_that_run_both_are_adopted(house: Any, make_profile: Any) -> None:
    """They run, they answer, there is room for both: a crash is no reason to stop one."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    old = house.runtime.here.pop(house.runtime.of("a").spec.name)
    await house.open(make_profile("b"))
    await house.leased("b")
    await house.close()
    house.runtime.here[old.spec.name] = old
    await house.open(make_profile("a"), make_profile("b"))
    engines, calls = list(house.supervisor.engines), house.runtime.calls
    assert engines == ["a", "b"]
    assert calls == [("start", "a"), ("start", "b")]


async def test_all_that_were_loading_are_gone_on_with(house: Any, make_profile: Any, behaviour: Any) -> None:
    """A daemon was killed in two loads: each is a swap that begins at its load, and both engines serve in the end."""
    house.runtime.zoo.update(a=behaviour(load_s=15), b=behaviour(load_s=15))
    profiles = [make_profile(name, gib=30, args={"kv-cache-memory-bytes": "1G"}) for name in "ab"]
    await house.open(*profiles)
    for name in "ab":
        house.ask(name)
        await house.loads(name)
    await house.crash()
    assert sorted(house.runtime.running()) == ["a", "b"]
    await house.open(*profiles)
    asking = house.ask("b")
    await house.clock.drive(asking.granted())
    await asking.leave()
    await house.settled()
    assert house.runtime.calls == [("start", "a"), ("start", "b")]
    ended = [(swap.target, swap.cause, swap.outcome) for swap in house.swaps()]
    assert ended == [("a", SwapCause.ADOPT, SwapOutcome.DONE), ("b", SwapCause.ADOPT, SwapOutcome.DONE)]


async def test_a_runtime_that_does_not_tell_is_asked_again(house: Any, make_profile: Any) -> None:
    """What runs is adopted once it is known, also beside what has come up meanwhile."""
    await house.open(make_profile("a", gib=30), make_profile("b", gib=30))
    await house.leased("a")
    await house.close()
    house.runtime.missing = True
    await house.open(make_profile("a", gib=30), make_profile("b", gib=30))
    assert [n.code for n in house.notices()] == ["runtime_missing"]
    house.runtime.missing = False
    await house.leased("b")
    while house.state("a") is None:
        house.clock.step()
        await house.clock.rest()
    engines = house.supervisor.engines
    assert {name: (engine.state, engine.adopted) for name, engine in engines.items()} == {
        "a": (EngineState.READY, True),
        "b": (EngineState.READY, False),
    }
    assert house.runtime.calls == [("start", "a"), ("start", "b")]


async def test_what_was_started_in_its_place_is_not_adopted(house: Any, make_profile: Any) -> None:
    """By the time the runtime tells, the same profile has been started anew: it stays what it is."""
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.close()
    house.runtime.missing = True
    await house.open(make_profile("a"))
    house.runtime.missing = False
    await house.runtime.end(house.runtime.of("a"), 0)
    await house.leased("a")
    for _ in range(20):
        house.clock.step()
        await house.clock.rest()
    assert not house.supervisor.engines["a"].adopted
    assert house.runtime.running() == ["a"]
