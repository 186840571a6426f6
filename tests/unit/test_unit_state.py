"""The nouns of the domain: the snapshot and how facts move it on, a swap in words, and what loads taught of memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.engine import Engine, EngineState, LoadProgress
from sparkdash.domain.event import EVENT, EngineChanged, Event, Fact, Level, Notice, RequestChanged, SwapChanged
from sparkdash.domain.memory import LEARNED_FROM, Basis, Footprint, Measure, Weighing, learn_footprint, learned_need
from sparkdash.domain.phrases import estimate_text, progress_text, wait_text, waiting_text
from sparkdash.domain.profile import EngineKind, ProfileSummary
from sparkdash.domain.request import Request, RequestState, Task
from sparkdash.domain.state import RECENT_REQUESTS, DaemonInfo, Snapshot, apply, replay
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.units import GIB

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
    """A request that gave no rate does not count as a zero; a broken stream says nothing about the profile's speed."""
    facts = [
        RequestChanged(request=request(n, RequestState.DONE, decode_tok_s=rate, ttft_s=0.5))
        for n, rate in enumerate([10.0, None, 30.0, 50.0])
    ]
    broken = [
        RequestChanged(request=request(9, end, decode_tok_s=1)) for end in (RequestState.FAILED, RequestState.GONE)
    ]
    gone = EngineChanged(engine=engine("p", EngineState.ABSENT))
    figures = after(*facts, *broken, gone).figures["p"]
    assert (figures.decode_tok_s, figures.best, figures.ttft_s) == (30.0, 50.0, 0.5)
    assert after(*broken).figures == {}


def test_a_median_is_of_requests_that_had_the_engine_to_themselves() -> None:
    """Two at once halve each other's rate, which says nothing of one alone; those of another box do not."""
    done = {"state": RequestState.DONE, "node": "local"}
    facts = [
        RequestChanged(request=request(n, **{**done, "decode_tok_s": rate, "granted_at": begin, "finished_at": end, **more}))
        for n, (rate, begin, end, more) in enumerate([
            (60.0, 0.0, 9.0, {}), (31.0, 10.0, 20.0, {}), (30.0, 19.0, 30.0, {}), (62.0, 30.0, 35.0, {}),
            (58.0, 32.0, 40.0, {"node": "spark2"}),
        ])
    ]  # fmt: skip
    figures = after(*facts).figures["p"]
    assert figures.rates == (60.0, 62.0, 58.0)
    beside = RequestChanged(request=request(8, state=RequestState.STREAMING, node="local", granted_at=41.0))
    late = RequestChanged(request=request(9, **done, decode_tok_s=9.0, granted_at=40.0, finished_at=42.0))
    assert after(*facts, beside, late).figures["p"].rates == (60.0, 62.0, 58.0)


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
    notice = Notice(level=Level.INFO, code="c", text="t")
    with pytest.raises(ValueError, match="does not follow"):
        apply(EMPTY, Event(seq=2, at=0, fact=notice))
    assert apply(EMPTY, Event(seq=0, at=0, fact=notice)) is EMPTY


@given(st.lists(st.sampled_from(list(RequestState)), max_size=120))
def test_open_requests_are_exactly_those_that_did_not_end(states: list[RequestState]) -> None:
    snapshot = after(*(RequestChanged(request=request(n % 7, state)) for n, state in enumerate(states)))
    last = {str(n % 7): state for n, state in enumerate(states)}
    still = {i for i, s in last.items() if s in (RequestState.WAITING, RequestState.PREFILL, RequestState.STREAMING)}
    assert set(snapshot.requests) == still
    assert len(snapshot.recent) <= RECENT_REQUESTS


def test_events_survive_the_wire() -> None:
    event = Event(seq=1, at=2.5, fact=EngineChanged(engine=engine("a", EngineState.LOADING)))
    assert EVENT.validate_json(EVENT.dump_json(event)) == event


SWAP = Swap(
    id="s", target="new", evict=("old",), cause=SwapCause.USER, phase=SwapPhase.LOAD, started_at=100, phase_at=110,
    progress=LoadProgress(stage="weights", fraction=0.62),
)  # fmt: skip
LEARNED = SWAP.model_copy(update={"eta_s": 100.0, "eta_low_s": 80.0, "eta_high_s": 130.0, "eta_at": 140.0})


def with_(swap: Swap, **facts: object) -> Swap:
    return swap.model_copy(update=facts)


@pytest.mark.parametrize(
    ("swap", "now", "words"),
    [
        (LEARNED, 140, "weights 62 % · about 1m40s left (1m20s to 2m10s)"),
        (with_(LEARNED, eta_low_s=None, eta_high_s=None), 235, "weights 62 % · about 5s left"),
        (LEARNED, 255, "weights 62 % · about 0s left (0s to 15s)"),
        (LEARNED, 400, "weights 62 % · longer than usual"),
        (SWAP, 143, "weights 62 % · first load here, 43s so far"),
        (with_(SWAP, reads_s=31.0), 143, "weights 62 % · first load here, 31s or more to read its weights, 43s so far"),
        (with_(SWAP, progress=LoadProgress(stage="compile")), 143, "compile · first load here, 43s so far"),
        (with_(LEARNED, phase=SwapPhase.DRAIN, progress=None), 150, "drain · about 1m40s left after the drain (1m20s to 2m10s)"),
        (with_(SWAP, target=None, phase=SwapPhase.STOP, progress=None), 143, "stop"),
    ],
)  # fmt: skip
def test_a_swap_in_one_line(swap: Swap, now: float, words: str) -> None:
    assert progress_text(swap, now) == words


def test_who_waits_is_told_for_what() -> None:
    assert waiting_text(None, "new", 140) == ""
    assert waiting_text(SWAP, "new", 143) == waiting_text(SWAP, "auto", 143) == f"new: {progress_text(SWAP, 143)}"
    assert waiting_text(SWAP, "other", 143).startswith("other comes after new: weights 62 %")
    assert waiting_text(with_(SWAP, target=None), "new", 143) == "old stops"
    assert estimate_text(with_(SWAP, target=None), 143) == ""


@pytest.mark.parametrize(("phase", "until", "words"), [
    (SwapPhase.DRAIN, 160, "waits for it, cut in 20s"), (SwapPhase.STOP, 170, "waits for it, killed in 30s"),
    (SwapPhase.STOP, 137, "waits for it, killed 3s ago"), (SwapPhase.RECLAIM, 260, "waits for it, given up in 2m00s"),
    (SwapPhase.RECLAIM, None, "waits for it"),
])  # fmt: skip
def test_what_is_waited_for_and_until_when(phase: SwapPhase, until: float | None, words: str) -> None:
    assert wait_text(with_(SWAP, phase=phase, waits_for="it", until=until), 140) == words
    assert wait_text(with_(SWAP, phase=phase, waits_for=None, until=until), 140) == ""


DAY = 1_795_132_800.0
"""2026-11-20, midnight UTC."""


def seen(gib: int, **facts: object) -> Weighing:
    given = {"id": str(gib), "at": DAY, "measure": Measure.PROCESSES, "steady_bytes": gib * GIB}
    return Weighing.model_validate({**given, "peak_bytes": (gib + 2) * GIB, **facts})


def test_nothing_is_learned_from_nothing() -> None:
    assert learn_footprint([]) is None
    assert learn_footprint([seen(10, spoilt="another engine came"), seen(10, steady_bytes=None, measure=None)]) is None


def test_one_outlier_moves_the_peak_and_not_what_is_held() -> None:
    """The median for what is held; for peaks the worst of those remembered."""
    found = learn_footprint([seen(60), seen(61), seen(100)])
    assert found is not None
    assert (found.steady_bytes, found.peak_bytes, found.loads) == (61 * GIB, 102 * GIB, 3)
    later = learn_footprint([seen(100), *[seen(60)] * LEARNED_FROM])
    assert later is not None
    assert (later.steady_bytes, later.peak_bytes, later.loads) == (60 * GIB, 62 * GIB, LEARNED_FROM)


def test_the_need_tells_where_its_figure_comes_from() -> None:
    learned = learned_need(
        Footprint(steady_bytes=60 * GIB, peak_bytes=70 * GIB, loads=3, at=DAY, measure=Measure.PROCESSES)
    )
    assert learned.basis is Basis.LEARNED
    assert (learned.total_bytes, learned.room_bytes) == (60 * GIB, 70 * GIB)
    assert [(t.name, t.bytes, t.source) for t in learned.terms] == [
        ("steady", 60 * GIB, "median of 3 loads on this box, 2026-11-20, by its own processes")
    ]


def test_a_need_from_one_load_says_so() -> None:
    learned = learned_need(Footprint(steady_bytes=60 * GIB, loads=1, at=DAY, measure=Measure.AVAILABLE))
    assert [t.source for t in learned.terms] == ["1 load on this box, 2026-11-20, by MemAvailable"]
    assert (learned.total_bytes, learned.room_bytes) == (60 * GIB, 60 * GIB)
