"""Orders of keys, what is asked first, and what the question names."""

from typing import Any

import pytest

from sparkdash.domain.engine import Failure, Parked
from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.node import Diagnosis, Finding, Status
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.domain.swap import Plan
from sparkdash.errors import AdmissionError, EngineError, ProfileError, SparkdashError
from sparkdash.units import GIB

GPT, CODER = "gpt-oss-120b", "qwen3-coder-30b-nvfp4"


async def test_switching_asks_first_and_escape_leaves_everything_as_it_is(on: Any) -> None:
    await on.press("2", "j", "s")
    assert "idle for 12m34s; it frees 78.2 GiB" in on.text, "the reason, as the daemon tells it"
    await on.press("escape")
    assert "switch to" not in on.text
    assert on.daemon.asked == []
    await on.press("s", "enter")
    assert on.daemon.asked == [("use", CODER)]
    assert f"{CODER} is starting." in on.text


@pytest.mark.parametrize(("plan", "keys", "told", "asked"), [
    (Plan(profile=CODER, needs_bytes=GIB, available_bytes=9 * GIB, fits=True), "2js", "is starting", [("use", CODER)]),
    (Plan(profile=GPT, fits=True, expected_s=0.0), "2s", "gpt-oss-120b is running already.", []),
    (Plan(profile=CODER, fits=True, expected_s=0.0, beside=(GPT,)), "t", "both run already", []),
], ids=["it stops nothing", "it runs", "both of the pair run"])  # fmt: skip
async def test_what_stops_nothing_is_not_asked_about(
    on: Any, plan: Plan, keys: str, told: str, asked: list[Any]
) -> None:
    on.daemon.plans[plan.profile] = plan
    await on.press(*keys)
    assert told in on.text
    assert on.daemon.asked == asked


async def test_a_file_that_is_broken_now_is_asked_about_and_its_last_good_version_named(stage: Any, box: Any) -> None:
    broken = "/p/coder.yaml:3: args: unknown key 'agrs'."
    async with stage(box.snapshot().model_copy(update={"problems": (broken,)})) as on:
        on.daemon.plans[box.coder] = Plan(profile=box.coder, needs_bytes=GIB, available_bytes=9 * GIB, fits=True)
        on.daemon.files[box.coder] = Profile(name=box.coder, engine=EngineKind.SIM, source="/p/coder.yaml:1")
        await on.press("2", "j", "s")
        assert "unknown key 'agrs'" in on.text
        assert f"{box.coder} is taken from the last" in on.text
        assert on.daemon.asked == []
        await on.press("enter")
        assert on.daemon.asked == [("use", box.coder)]


async def test_what_does_not_fit_is_told_and_not_offered(stage: Any, box: Any) -> None:
    figures = {"needs_bytes": 130 * GIB, "available_bytes": 111 * GIB, "fits": False}
    async with stage(box.snapshot()) as on:
        on.daemon.plans[CODER] = Plan(profile=CODER, evict=(GPT,), verdict="It does not fit: 19 GiB lack.", **figures)
        await on.press("2", "j", "s")
        assert "fits   no, needs 130 GiB, 111 GiB available then" in on.text
        assert "It does not fit: 19 GiB lack." in on.text
        await on.press("enter")
        assert on.daemon.asked == []


async def test_a_system_that_cannot_run_says_why(on: Any) -> None:
    await on.press("2", "j", "j", "j", "enter")
    assert "mtp cannot run as published" in on.text
    assert "no MTP head in this model" in on.text
    assert "qwen3-coder-30b-nvfp4/eagle3" in on.text
    await on.press("enter", "enter")
    assert on.daemon.asked == []


async def test_enter_tells_what_a_profile_needs_and_offers_the_switch(stage: Any, box: Any) -> None:
    weights = Term(name="weights", bytes=17 * GIB, source="the headers of the safetensors files")
    unknown = Term(name="kv", bytes=None, source="nobody says how much")
    need = Need(basis=Basis.ESTIMATED, terms=(weights, unknown), peak_bytes=30 * GIB)
    async with stage(box.snapshot()) as on:
        on.daemon.plans[CODER] = Plan(
            profile=CODER, evict=(GPT,), reasons={GPT: "idle"}, need=need, now_bytes=37 * GIB,
            reserve_bytes=10 * GIB, available_bytes=105 * GIB, verdict="Whether it fits is not sure.",
        )  # fmt: skip
        await on.press("2", "j", "enter")
        for row in (
            "need -, estimated", "weights 17.0 GiB the headers of the safetensors files",
            "kv - nobody says how much", "peak 30.0 GiB while it loads", "available now 37.0 GiB", "reserve 10.0 GiB, kept free",
            "leaves gpt-oss-120b: idle", "available then 105.0 GiB, without the reserve", "Whether it fits is not sure.",
        ):  # fmt: skip
            assert any(row in line for line in on.rows), row
        await on.press("enter")
        assert on.daemon.asked == []
        assert f"switch to {CODER}?" in on.text, "it stops something, which is asked about"


async def test_a_service_elsewhere_is_neither_off_nor_started(stage: Any, box: Any) -> None:
    world = box.snapshot()
    far = world.profiles[-1].model_copy(update={"name": "zz-far", "engine": EngineKind.REMOTE, "needs_bytes": 0})
    async with stage(world.model_copy(update={"profiles": (*world.profiles, far)})) as on:
        await on.press("2", "G")
        row = next(line for line in on.lines if "zz-far" in line)
        assert "remote" in row
        assert "elsewhere" in row
        assert "remote service: nothing to start" in on.text
        assert "forwarded" in on.rows, "it is whole"
        await on.press("enter")
        assert "zz-far is a remote service: it needs nothing on this box." in on.text


async def test_a_parked_profile_is_marked_and_released(stage: Any, box: Any) -> None:
    failure = Failure(code="out_of_memory", message="It ran out of memory.", hint="Take less.")
    parked = {"qwen3.5-122b": Parked(since=0, failures=2, failure=failure)}
    async with stage(box.snapshot().model_copy(update={"parked": parked})) as on:
        await on.press("2", "G")
        assert any(row.endswith("✗ parked") for row in on.rows)
        assert "✗ parked, u releases it: It ran out of memory. Take less." in on.text
        await on.press("u")
        assert on.daemon.asked == [("release", "qwen3.5-122b")]
        await on.press("g", "u")
        assert "is not parked" in on.text
        assert len(on.daemon.asked) == 1


async def test_flipping_asks_once_and_the_same_key_says_yes(on: Any) -> None:
    await on.press("t")
    assert "flip to qwen3-coder-30b-nvfp4?" in on.text
    assert "stops  gpt-oss-120b" in on.text
    await on.press("t")
    assert on.daemon.asked == [("toggle", None, None, True)]


async def test_marking_sets_one_side_and_flipping_needs_both(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(toggle_a=None, toggle_b=None)) as on:
        await on.press("t")
        assert "Mark two profiles first" in on.text
        await on.press("2", "a")
        assert on.daemon.asked == [("toggle", GPT, None, False)]
        assert "gpt-oss-120b is A; mark the other one." in on.text
    async with stage(box.snapshot(seq=500, toggle_b=None)) as on:
        on.daemon.asked.clear()
        await on.press("2", "b")
        assert "gpt-oss-120b is A already" in on.text
        await on.press("j", "b")
        assert on.daemon.asked == [("toggle", None, CODER, False)]


async def test_cancelling_says_who_is_refused(stage: Any, box: Any) -> None:
    async with stage(box.swapping()) as on:
        await on.press("x")
        assert "stops  the start of qwen3-coder-30b-nvfp4" in on.text
        assert "1 request waiting for it: refused" in on.text
        await on.press("x")
        assert on.daemon.asked == [("cancel",)]


async def test_a_switch_tells_the_requests_that_may_finish_once(on: Any) -> None:
    """The plan's reason has them too."""
    reasons = {GPT: "no idle engine frees enough; its 2 requests may finish; it frees 78.2 GiB"}
    on.daemon.plans[CODER] = Plan(profile=CODER, evict=(GPT,), reasons=reasons, fits=True)
    await on.press("2", "j", "s")
    assert f"switch to {CODER}?" in on.text
    assert on.text.count("may finish") == 1


async def test_stopping_tells_those_that_are_served_from_those_that_wait(stage: Any, box: Any) -> None:
    """Requests for an engine that is stopped while it loads are refused; none of them may finish."""
    async with stage(box.swapping()) as on:
        on.app.orders.stop()
        await on.settle()
        assert "stops  qwen3-coder-30b-nvfp4: frees 17.0 GiB" in on.text
        assert "1 request waiting for it: refused" in on.text
        assert "may finish" not in on.text


async def test_on_the_profiles_the_engine_under_the_cursor_is_stopped(stage: Any, box: Any) -> None:
    both = {box.gpt: box.engine(), box.coder: box.engine(box.coder, ready_at=box.now - 9000)}
    async with stage(box.snapshot(engines=both)) as on:
        await on.press("2", "j", "x")
        assert "stop qwen3-coder-30b-nvfp4?" in on.text
        await on.press("x")
        assert on.daemon.asked == [("stop", box.coder)]
        await on.press("G", "x")
        assert "qwen3.5-122b does not run." in on.text


async def test_one_request_is_ended(stage: Any, box: Any) -> None:
    world = box.snapshot()
    async with stage(world) as on:
        first = next(iter(world.requests.values()))
        await on.press("3", "x")
        assert "end this request?" in on.text
        assert f"{first.client} at {first.profile}  {first.id}" in on.text
        assert on.daemon.asked == []
        await on.press("x")
        assert on.daemon.asked == [("cancel_request", first.id)]
        await on.press("G", "x")
        assert "That request has ended already." in on.text
        assert len(on.daemon.asked) == 1


@pytest.mark.parametrize(("engine", "told"), [
    ({}, ("stop gpt-oss-120b?",)),
    ({"kind": EngineKind.OPENAI, "url": "http://127.0.0.1:1234", "container": None},
     ("stop using gpt-oss-120b?", "http://127.0.0.1:1234", "keeps")),
], ids=["ours", "another program's"])  # fmt: skip
async def test_an_engine_is_stopped_and_a_server_that_is_not_ours_is_left(
    stage: Any, box: Any, engine: dict[str, Any], told: tuple[str, ...]
) -> None:
    async with stage(box.snapshot(engines={GPT: box.engine(**engine)})) as on:
        await on.press("x")
        assert [words for words in told if words not in on.text] == []
        await on.press("enter")
        assert on.daemon.asked == [("stop", GPT)]


NO_IMAGE = EngineError(
    "The image is not there.", hint="Pull it.", log_tail=("no such image",), evidence="/state/incidents/1"
)
SIMULATED = "The demo's memory is simulated. Without a demo, `sparkdash memory` shows who holds this box's memory."


@pytest.mark.parametrize(("keys", "refusal", "told"), [
    (("2", "j", "s", "enter"), NO_IMAGE,
     ("that did not work", "The image is not there.", "→ Pull it.", "no such image", "evidence: /state/incidents/1")),
    (("2", "r"), ProfileError("2 are not valid.", problems=("a.yaml:3: x", "b.yaml:9: y")), ("a.yaml:3: x", "b.yaml:9: y")),
    (("D",), AdmissionError("The demo's box is simulated.", code="no_doctor"), ("The demo's box is simulated.",)),
    (("6",), AdmissionError("Nothing is recorded here.", code="no_history"), ("Nothing is recorded here.",)),
    (("7",), AdmissionError(SIMULATED, code="no_memory_account"), (SIMULATED,)),
    (("A", "enter"), ProfileError("The suite cannot be used: line 3."), ("The suite cannot be used: line 3.",)),
], ids=["switch", "files", "doctor", "history", "memory", "run"])  # fmt: skip
async def test_a_refusal_of_the_daemon_is_shown_whole(
    on: Any, keys: tuple[str, ...], refusal: SparkdashError, told: tuple[str, ...]
) -> None:
    on.daemon.refuses = refusal
    await on.press(*keys)
    await on.until(lambda: [words for words in told if words not in " ".join(on.rows)] == [])
    assert "begin" not in [order[0] for order in on.daemon.asked]


async def test_a_plan_that_fails_leaves_the_detail_unknown(on: Any) -> None:

    async def plan(*, name: str) -> Plan:
        raise AdmissionError("no")

    on.daemon.plan = plan
    await on.press("2")
    assert "fits now: -" in on.text


@pytest.mark.parametrize(("facts", "told", "asked"), [
    ({}, "localhost/vllm:1: there", True),
    ({"weights": (ModelRef(hf="org/m"),)}, "Image there. Weights: `sparkdash pull {}` on the daemon's box.", True),
    ({"simulated": True}, "{} is simulated: there is nothing to fetch.", False),
], ids=["image", "weights", "simulated"])  # fmt: skip
async def test_a_pull_tells_how_it_goes_and_how_the_weights_come(
    stage: Any, box: Any, facts: Any, told: str, asked: bool
) -> None:
    """From another box the key fetches the image only; nothing is fetched of what is simulated."""
    world = box.snapshot()
    profiles = tuple(p.model_copy(update=facts) if p.name == GPT else p for p in world.profiles)
    async with stage(world.model_copy(update={"profiles": profiles})) as on:
        await on.press("2", "p")
        assert told.format(GPT) in on.text
        assert on.daemon.asked == ([("pull", GPT)] if asked else [])


async def test_an_engine_whose_file_was_edited_is_told_apart(stage: Any, box: Any) -> None:
    """The engine serves what the file said before; using it again starts it anew."""
    world = box.snapshot(engines={box.gpt: box.engine(fingerprint="older")})
    async with stage(world) as on:
        on.daemon.plans[box.gpt] = Plan(profile=box.gpt, evict=(box.gpt,), fits=True, expected_s=220.0)
        await on.press("2")
        assert "A gpt-oss-120b vLLM 0.19.0 79 GiB 59.1 57.0 ● ready, edited" in on.rows
        assert "its file was edited: the engine is restarted · load ~3m40s" in on.text


async def test_a_hold_of_the_memory_guard_is_told_first(stage: Any, box: Any) -> None:
    """In the detail in place of the figures where nobody would leave, and in the question where somebody does."""
    words = "it is held back: 7.0 GiB are available"
    async with stage(box.snapshot()) as on:
        on.daemon.plans[box.coder] = Plan(profile=box.coder, held=words)
        await on.press("2", "j")
        assert words in on.text
        on.daemon.plans[box.coder] = Plan(profile=box.coder, evict=(box.gpt,), held=words)
        await on.press("s")
        assert on.text.index(words) < on.text.index("stops")


async def test_the_doctor_tells_what_is_well_in_one_line(stage: Any, box: Any) -> None:
    well = tuple(Finding(name=name, status=Status.OK, evidence="Well.") for name in ("swap", "vm"))
    async with stage(box.snapshot()) as on:
        on.daemon.diagnosis = Diagnosis(findings=well)
        await on.press("D")
        assert on.daemon.asked == [("doctor",)]
        assert any("ok swap, vm" in row for row in on.rows)


async def test_a_dialog_is_whole_in_a_narrow_terminal(on: Any) -> None:
    await on.press("2", "j", "s")
    await on.pilot.resize_terminal(50, 30)
    await on.settle()
    assert "…" not in "".join(line for line in on.lines if line.startswith(("╭ switch", "│ stops", "│ fits")))
    assert "stops gpt-oss-120b: 2 requests in flight may" in on.rows
    assert "finish" in on.rows
    await on.press("escape", "question_mark")
    assert "move; page up and down; the" in on.text
    assert not any(line.startswith("│") and "…" in line for line in on.lines)


async def test_a_dialog_longer_than_the_screen_scrolls(on: Any) -> None:
    on.daemon.diagnosis = Diagnosis(
        findings=tuple(Finding(name=f"check-{n}", status=Status.NOTE, evidence=f"Seen {n}.") for n in range(20))
    )
    await on.press("D")
    assert "Seen 0." in on.text
    assert "Seen 19." not in on.text
    await on.press("j", "pagedown", "end")
    assert "Seen 0." not in on.text
    assert "Seen 19." in on.text
    await on.press("k", "pageup", "home")
    assert "Seen 0." in on.text
