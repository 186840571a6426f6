"""A run's table from its samples: figures, verdicts, blanks with their reason, the arms over all cells, and the why of speculation."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.bench.judge.judgement import decompose, judged_rows, overall
from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch, fixed_time_s
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.layout import derive_layout
from sparkdash.bench.results import RequestSample, Results
from sparkdash.bench.run import Arm, CellKey, LaunchSlot, Mode

Rehearse = Callable[..., Results]
PLAIN, EAGLE = Arm(name="plain", profile="a"), Arm(name="eagle", profile="b")
MTP = Arm(name="mtp", profile="c", impossible="the checkpoint has no MTP head")
SHORT = CellKey(suite="seeds", context=512, output=400)
LONG = CellKey(suite="seeds", context=8192, output=400)
PAIR = CellKey(suite="seeds", context=512, output=256, concurrency=2)
RATES = {"plain": {SHORT: 65.0, LONG: 55.0}, "eagle": {SHORT: 68.0, LONG: 45.0}}
SPECULATES: dict[str, Any] = {"provenance": {"eagle": {"speculation": "eagle3 x 1"}}, "drafts": {"eagle": (60,)}}
FIXED_S, PREFILL = 0.03, 6600.0


@pytest.fixture
def measure(rehearse: Rehearse) -> Rehearse:
    """Rehearses a careful run of three arms, one of which cannot run."""

    def measured(**changes: Any) -> Results:
        usual = {"arms": [PLAIN, EAGLE, MTP], "rates": RATES, "mode": Mode.CAREFUL, "reps": 5, "wobble": 0.002}
        return rehearse(**{**usual, **changes})

    return measured


def with_samples(results: Results, change: Callable[[RequestSample], RequestSample]) -> Results:
    return results.replace(samples=tuple(map(change, results.samples)))


def test_every_cell_has_figure_and_verdict(measure: Rehearse) -> None:
    """Eagle is faster in the one and slower in the other; the arm that cannot run says why."""
    short, long = judged_rows(measure())
    assert [figure.arm for figure in short.figures] == ["plain", "eagle", "mtp"]
    plain, eagle, mtp = short.figures
    assert plain.verdict.claim is Conclusion.BASELINE
    assert plain.median == pytest.approx(65 * 399 / 360, rel=0.005)
    assert (plain.n, plain.launches, plain.bootstrap) == (20, 4, True)
    assert eagle.verdict.claim is Conclusion.FASTER
    assert eagle.verdict.delta == pytest.approx(68 / 65 - 1, abs=0.005)
    assert long.figures[1].verdict.claim is Conclusion.SLOWER
    assert (mtp.median, mtp.verdict.text) == (None, "impossible: the checkpoint has no MTP head")


def test_blank_cells_say_why(measure: Rehearse) -> None:
    (bare,) = judged_rows(measure(rates={"plain": {SHORT: 65.0}}).replace(samples=(), cells=()))
    assert {figure.verdict.claim for figure in bare.figures[:2]} == {Conclusion.MISSING}
    short, long = judged_rows(measure(voids={("eagle", SHORT): "clock fell to 820 MHz", ("plain", LONG): "HTTP 500"}))
    assert short.figures[1].verdict.text == "void: clock fell to 820 MHz"
    assert long.figures[0].verdict.text == "void: HTTP 500"
    assert long.figures[1].verdict.text == "not measured: plain has no figure here"


def test_a_run_of_two_launches_an_arm_only_hints(measure: Rehearse) -> None:
    """A B B A, recorded by an earlier version: every cell and the line over all of them say how many launches."""
    before = measure(mode=Mode.STANDARD)
    order = tuple(LaunchSlot(arm=arm, block=at // 2) for at, arm in enumerate(("plain", "eagle", "eagle", "plain")))
    arm_of = {at: slot.arm for at, slot in enumerate(order)}
    kept = with_samples(before, lambda one: one.replace(arm=arm_of.get(one.launch, "")))
    results = kept.replace(run=before.run.replace(order=order), samples=tuple(one for one in kept.samples if one.arm))
    found = [row.figures[1].verdict for row in judged_rows(results)] + [overall(results)[0].verdict]
    assert {one.claim for one in found} == {Conclusion.SCREEN}
    assert found[0].text.startswith("screen only (2 launches): looks like ")
    assert judged_rows(before)[0].figures[1].verdict.claim is Conclusion.FASTER


def test_over_all_cells_the_geometric_mean_with_the_worst_cell(measure: Rehearse) -> None:
    """+4.6 % and -18.2 % are -7.5 % together, as the mean of logarithms has it; the worst cell is named."""
    eagle, mtp = overall(measure())
    assert eagle.verdict.claim is Conclusion.SLOWER
    assert eagle.verdict.delta == pytest.approx(math.sqrt(68 / 65 * 45 / 55) - 1, abs=0.005)
    assert (eagle.worst, eagle.best, eagle.cells) == (LONG, SHORT, 2)
    assert eagle.worst_delta == pytest.approx(45 / 55 - 1, abs=0.005)
    assert (mtp.cells, mtp.verdict.claim) == (0, Conclusion.IMPOSSIBLE)


def test_speculation_is_taken_apart(measure: Rehearse) -> None:
    """tok/s +4.6 % is acceptance length x 1.6 and steps/s x 0.65."""
    results = measure(**SPECULATES)
    found = decompose(results, "eagle", SHORT)
    assert found is not None
    assert found.acceptance_length == pytest.approx(1.6)
    assert found.steps_per_s == pytest.approx(68 * 399 / 360 / 1.6, rel=0.005)
    assert found.steps_s.claim is Conclusion.SLOWER
    assert found.steps_s.delta == pytest.approx(68 / 65 / 1.6 - 1, abs=0.005)
    assert decompose(results, "plain", SHORT) is None
    assert decompose(results.replace(samples=(), cells=()), "eagle", SHORT) is None
    stranger = measure(provenance={name: {"fingerprint": None} for name in RATES}, drafts=SPECULATES["drafts"])
    assert decompose(stranger, "eagle", SHORT) is None


def test_steps_per_second_show_the_engine_where_the_texts_hide_it(measure: Rehearse) -> None:
    """Acceptance from 1.1 to 2.4 by prompt leaves the gain on other texts open; that a step costs 5 % more is plain."""
    lengths = [1.1, 2.4, 1.3, 1.6, 1.2]
    drafts = round(sum(400 / length for length in lengths))

    def drafted(one: RequestSample) -> RequestSample:
        length = lengths[one.rep] if one.arm == "eagle" else 1.0
        return one.replace(token_ns=round((one.token_ns or 0) / length), last_ns=round((one.last_ns or 0) / length))

    steps_s = {"plain": {SHORT: 65.0}, "eagle": {SHORT: 65.0 * 0.95}}
    results = with_samples(measure(**SPECULATES, rates=steps_s), drafted)
    counted = {"drafts": drafts, "accepted_tokens": 2000 - drafts}
    results = results.replace(
        cells=tuple(one.replace(**counted) if one.arm == "eagle" else one for one in results.cells)
    )
    found = decompose(results, "eagle", SHORT)
    assert found is not None
    assert judged_rows(results)[0].figures[1].verdict.claim is Conclusion.INCONCLUSIVE
    assert found.steps_s.claim is Conclusion.SLOWER
    assert found.steps_s.delta == pytest.approx(-0.05, abs=0.004)
    assert found.acceptance_length == pytest.approx(2000 / drafts, rel=0.001)


def test_prefill_leaves_the_fixed_time_out(measure: Rehearse) -> None:
    """30 ms of scheduling make no slow prefill: the fitted rate is the true one in short contexts too."""

    def prefilled(one: RequestSample) -> RequestSample:
        return one.replace(token_ns=round((FIXED_S + (one.cell.context + 20) / PREFILL) * 1e9))

    results = with_samples(measure(), prefilled)
    assert fixed_time_s(results, "plain") == pytest.approx(FIXED_S, rel=0.01)
    for key in (SHORT, LONG):
        for prompts in figures_by_launch(results, "plain", key, BenchMetric.PREFILL).values():
            assert list(prompts.values()) == pytest.approx([PREFILL] * 5, rel=0.005)
    assert judged_rows(results, BenchMetric.PREFILL)[0].figures[1].verdict.claim is Conclusion.NO_DIFFERENCE


def test_a_repetition_of_concurrent_requests_is_one_value(measure: Rehearse) -> None:
    """Two streams at 60 tok/s are 120 together; a repetition that lacks a stream has no value."""
    whole = measure(rates={"plain": {PAIR: 60.0}}, mode=Mode.SCREEN, reps=2, wobble=0.0)
    torn = whole.replace(samples=whole.samples[:3])
    values = figures_by_launch(torn, "plain", PAIR, BenchMetric.AGGREGATE)
    assert list(values[0]) == ["rep 0"]
    assert values[0]["rep 0"] == pytest.approx(120)
    assert len(figures_by_launch(torn, "plain", PAIR, BenchMetric.DECODE)[0]) == 3


def test_the_users_suite_judges_the_tokens_of_all_users_together(rehearse: Rehearse) -> None:
    """Every second user of one engine is served late; each answer then comes as fast as of two engines."""
    arms = [Arm(name="one", profile="coder@spark2"), Arm(name="both", profile="coder")]
    users = [CellKey(suite="users", context=512, output=128, concurrency=count) for count in (1, 8)]
    rates = {arm.name: dict.fromkeys(users, 50.0) for arm in arms}
    results = rehearse(arms=arms, rates=rates, wobble=0.001, changes={"suite": "users"})

    def queued(one: RequestSample) -> RequestSample:
        if one.arm == "both" or one.stream % 2 == 0:
            return one
        wait = one.last_ns or 0
        moved = ("token_ns", "visible_ns", "last_ns")
        return one.replace(**{name: getattr(one, name) + wait for name in moved})

    report = assemble_report(results.replace(samples=tuple(map(queued, results.samples))))
    (decode,) = [table for table in report.tables if table.metric is BenchMetric.DECODE]
    assert decode.overall[0].verdict.claim is not Conclusion.FASTER
    (over_all,) = report.overall
    assert over_all.verdict.claim is Conclusion.FASTER
    assert (over_all.cells, over_all.best, round(over_all.best_delta or 0, 2)) == (2, users[1], 1.0)
    assert derive_layout(report).metric == "aggregate"
    (table,) = [table for table in report.tables if table.metric is BenchMetric.AGGREGATE]
    assert [row.key for row in table.rows] == users


def test_the_load_suite_judges_the_time_of_each_launch(rehearse: Rehearse) -> None:
    """Table with a value for each launch; less is better, also for what a sweep recommends. Other suites have none."""
    key, took = CellKey(suite="load", context=0, output=16), {"plain": 291.0, "eagle": 66.0}
    arms = [PLAIN, Arm(name="eagle", profile="coder/eagle")]
    results = rehearse(arms=arms, rates={arm: {key: 50.0} for arm in took}, changes={"suite": "load"})
    swept = tuple(arm.replace(parameters={"load-format": arm.name}) for arm in results.run.arms)
    results = results.replace(run=results.run.replace(arms=swept))
    launches = tuple(
        one.replace(provenance=one.provenance.replace(startup_s=took[one.arm] * (1 + one.index / 1000)))
        for one in results.launches
    )
    report = assemble_report(results.replace(launches=launches))
    (table,) = [table for table in report.tables if table.metric is BenchMetric.LOAD]
    (verdict,) = [one.verdict for one in table.overall]
    assert verdict.claim is Conclusion.FASTER
    assert [(one.arm, one.runner_up and one.runner_up.arm) for one in report.advice] == [("eagle", "plain")]
    assert figures_by_launch(results, "eagle", key, BenchMetric.LOAD)
    assert derive_layout(report).metric == "load"
    assert BenchMetric.LOAD not in {
        table.metric for table in assemble_report(rehearse(arms=[PLAIN], rates={"plain": {key: 50.0}})).tables
    }
