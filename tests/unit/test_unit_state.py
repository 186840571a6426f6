"""The snapshot and how facts move it on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import (
    EVENT,
    EngineChanged,
    Event,
    Fact,
    Level,
    Notice,
    RequestChanged,
    SwapChanged,
)
from sparkdash.domain.profile import EngineKind, ProfileSummary
from sparkdash.domain.request import Request, RequestState, Task
from sparkdash.domain.state import RECENT_REQUESTS, DaemonInfo, Snapshot, apply, replay
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase

DAEMON = DaemonInfo(version="0", host="box", pid=1, started_at=0, runtime="podman", url="http://127.0.0.1/v1")
EMPTY = Snapshot(seq=0, at=0, daemon=DAEMON)


def engine(name: str, state: EngineState, **more: object) -> Engine:
    return Engine(profile=name, kind=EngineKind.SIM, state=state, since=0, fingerprint="f", **more)  # type: ignore[arg-type]


def request(number: int, state: RequestState, **more: object) -> Request:
    values: dict[str, object] = {"client": "c", "profile": "p", "route": "chat", "state": state, "started_at": 0}
    return Request(id=str(number), **(values | more))  # type: ignore[arg-type]


def after(*facts: Fact) -> Snapshot:
    return replay(EMPTY, [Event(seq=n, at=n, fact=fact) for n, fact in enumerate(facts, 1)])


def test_an_engine_comes_changes_and_goes() -> None:
    """`absent` removes it; `active` is the ready one."""
    ready = EngineChanged(engine=engine("a", EngineState.READY, ready_at=1, load_s=9))
    assert after(ready).active == ready.engine
    assert after(ready).figures["a"].load_s == 9
    assert after(ready, EngineChanged(engine=engine("a", EngineState.ABSENT))).engines == {}


def test_an_engine_of_an_edited_file_is_outdated() -> None:
    """Not one that failed, nor one whose profile is gone: there is nothing that runs, or nothing newer."""
    world = after(EngineChanged(engine=engine("p", EngineState.READY)))
    assert not world.is_outdated("p")
    assert not world.is_outdated("nobody")
    for fingerprint, state, outdated in (("f", "ready", False), ("g", "ready", True), ("g", "failed", False)):
        profile = ProfileSummary.model_construct(name="p", fingerprint=fingerprint)
        edited = world.model_copy(update={"profiles": (profile,), "engines": {"p": engine("p", EngineState(state))}})
        assert edited.is_outdated("p") is outdated


def test_what_auto_means_is_what_was_used_last_and_does_what_is_asked() -> None:
    """Neither what became ready last nor what only embeds; without any use, what became ready last."""
    used = engine("used", EngineState.READY).replace(ready_at=1.0, asked_at={Task.GENERATE: 10.0})
    late = engine("late", EngineState.READY).replace(ready_at=5.0, asked_at={Task.EMBED: 20.0})
    embeds = engine("embeds", EngineState.READY).replace(ready_at=6.0, does=frozenset({Task.EMBED}))
    world = after(*(EngineChanged(engine=one) for one in (used, late, embeds)))
    assert world.active == used
    assert (world.auto(Task.EMBED), world.auto(Task.RERANK), world.auto(None)) == ("late", "late", "late")
    assert after(EngineChanged(engine=embeds)).active is None
    fresh = after(*(EngineChanged(engine=one.replace(asked_at={})) for one in (late, used)))
    assert fresh.auto(Task.GENERATE) == "late"


def test_several_swaps_are_under_way_each_until_it_ends() -> None:
    began = Swap(
        id="s", target="a", evict=(), cause=SwapCause.USER, phase=SwapPhase.LOAD, started_at=0, phase_at=0
    )  # fmt: skip
    beside = began.replace(id="t", target="b")
    warm = began.replace(phase=SwapPhase.WARM)
    both = after(SwapChanged(swap=began), SwapChanged(swap=beside), SwapChanged(swap=warm))
    assert (both.swap, both.swaps_beside, both.swaps_under_way) == (warm, (beside,), (warm, beside))
    assert (both.swap_to("a"), both.swap_to("b"), both.swap_to("c")) == (warm, beside, None)
    over = warm.replace(ended_at=5.0, outcome=SwapOutcome.DONE)
    one = apply(both, Event(seq=both.seq + 1, at=5.0, fact=SwapChanged(swap=over)))
    assert (one.swap, one.swaps_beside, one.swaps) == (beside, (), (over,))


def test_figures_are_medians_of_finished_requests_and_outlive_the_engine() -> None:
    """A request that gave no rate does not count as a zero."""
    facts = [
        RequestChanged(request=request(n, RequestState.DONE, decode_tok_s=rate, ttft_s=0.5))
        for n, rate in enumerate([10.0, None, 30.0, 50.0])
    ]
    gone = EngineChanged(engine=engine("p", EngineState.ABSENT))
    figures = after(*facts, gone).figures["p"]
    assert (figures.decode_tok_s, figures.best, figures.ttft_s) == (30.0, 50.0, 0.5)


def test_failed_requests_do_not_count() -> None:
    """A broken stream says nothing about the profile's speed."""
    snapshot = after(
        RequestChanged(request=request(1, RequestState.FAILED, decode_tok_s=1)),
        RequestChanged(request=request(2, RequestState.GONE, decode_tok_s=1)),
    )
    assert snapshot.figures == {}
    assert len(snapshot.recent) == 2


def test_what_is_asked_on_the_side_leaves_room_for_requests() -> None:
    """A bench counts a prompt's tokens some ten times before it asks: one row tells it. One that failed stays."""
    counts = [request(n, RequestState.DONE, client="bench", route="/tokenize") for n in range(60)]
    failed = request(90, RequestState.FAILED, client="bench", route="/tokenize")
    other = request(91, RequestState.DONE, client="claude-code", route="/v1/messages/count_tokens")
    facts = [
        RequestChanged(request=one)
        for one in (request(80, RequestState.DONE), failed, *counts[:30], other, *counts[30:])
    ]
    snapshot = after(*facts)
    assert [one.id for one in snapshot.recent] == ["59", "91", "90", "80"]
    assert replay(EMPTY, [Event(seq=n, at=n, fact=fact) for n, fact in enumerate(facts, 1)]).recent == snapshot.recent


def test_a_gap_is_refused_and_a_repeat_ignored() -> None:
    """A reader that missed a fact must not go on as if nothing had happened."""
    notice = Notice(level=Level.INFO, code="c", text="t")
    with pytest.raises(ValueError, match="does not follow"):
        apply(EMPTY, Event(seq=2, at=0, fact=notice))
    assert apply(EMPTY, Event(seq=0, at=0, fact=notice)) is EMPTY


@given(st.lists(st.sampled_from(list(RequestState)), max_size=120))
def test_open_requests_are_exactly_those_that_did_not_end(states: list[RequestState]) -> None:
    """Books stay small however many requests pass."""
    snapshot = after(*(RequestChanged(request=request(n % 7, state)) for n, state in enumerate(states)))
    last = {str(n % 7): state for n, state in enumerate(states)}
    still = {i for i, s in last.items() if s in (RequestState.WAITING, RequestState.PREFILL, RequestState.STREAMING)}
    assert set(snapshot.requests) == still
    assert len(snapshot.recent) <= RECENT_REQUESTS


def test_events_survive_the_wire() -> None:
    event = Event(seq=1, at=2.5, fact=EngineChanged(engine=engine("a", EngineState.LOADING)))
    assert EVENT.validate_json(EVENT.dump_json(event)) == event
