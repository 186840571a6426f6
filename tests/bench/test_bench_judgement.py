"""A run's table from its samples: figures, verdicts, blanks with their reason, the arms over all cells, and the why of speculation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.bench.judge.judgement import decompose, judged_rows, overall
from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch, fixed_time_s
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.plan import suites
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats import render_markdown
from sparkdash.bench.report.layout import derive_layout, load_layout, shipped_layouts
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import CellRecord, LaunchRecord, Provenance, RequestSample, Results, gather
from sparkdash.bench.run import Arm, CellKey, Kind, LaunchSlot, Mode, PlannedCell, Run
from tests.bench.conftest import AT, run_of
from tests.shared.alternating import alternating

Rehearse = Callable[..., Results]
PLAIN, DRAFT = Arm(name="plain", profile="coder"), Arm(name="plain-dflash", profile="coder/dflash")


def key(context: int, output: int = 128, **changes: Any) -> CellKey:
    return CellKey(suite="paired", context=context, output=output, **changes)


def test_every_shipped_layout_draws_a_run_that_measured_nothing(rehearse: Rehearse) -> None:
    found = assemble_report(rehearse(arms=[PLAIN, DRAFT], rates={"plain": {key(0): 12.0}, "plain-dflash": {}}))
    for name in shipped_layouts():
        assert render_markdown(report_page(found, load_layout(name))).startswith("# ")


def test_the_suites_of_the_published_tables_have_their_cells() -> None:
    paired = suites.load_suite("paired").planned(Mode.STANDARD)
    assert [(cell.key.context, cell.reps) for cell in paired] == [(2048, 30), (32768, 30), (131072, 30)]
    kinds = {cell.key.kind for cell in suites.load_suite("batch").planned(Mode.STANDARD)}
    assert kinds == {Kind.SPEED, Kind.PREFIX}


FIXED_S, PREFILL = 0.03, 6600.0
SHORT = CellKey(suite="seeds", context=512, output=400)
LONG = CellKey(suite="seeds", context=8192, output=400)
PAIR = CellKey(suite="seeds", context=512, output=256, concurrency=2)
RATES = {("plain", SHORT): 65.0, ("plain", LONG): 55.0, ("eagle", SHORT): 68.0, ("eagle", LONG): 45.0}


def a_run(mode: Mode = Mode.CAREFUL, cells: tuple[CellKey, ...] = (SHORT, LONG)) -> Run:
    arms = (
        Arm(name="plain", profile="a"),
        Arm(name="eagle", profile="b"),
        Arm(name="mtp", profile="c", impossible="the checkpoint has no MTP head"),
    )
    planned = [PlannedCell(key=key, reps=5) for key in cells]
    return run_of(arms, alternating(("plain", "eagle"), mode), planned, mode)


def sample(arm: str, launch: int, key: CellKey, rep: int, rate: float, stream: int = 0) -> RequestSample:
    """One request of that decode rate, its first token after 30 ms and the prefill."""
    first_s = FIXED_S + (key.context + 20) / PREFILL
    tokens = key.output
    return RequestSample(
        cell=key,
        arm=arm,
        launch=launch,
        rep=rep,
        stream=stream,
        prompt_id=f"{key.context}.{rep}.{stream}",
        t0_ns=0,
        token_ns=round(first_s * 1e9),
        last_ns=round((first_s + (tokens - 1) / rate) * 1e9),
        n=tokens,
        prompt_tokens=key.context + 20,
        cached_tokens=0,
    )


def measured(run: Run, void: dict[tuple[str, CellKey], str] | None = None, length: float = 1.6) -> Results:
    """All launches of plain and eagle with 0.2 % noise; eagle's counters say `length`."""
    rng = random.Random(1)
    records: list[LaunchRecord | RequestSample | CellRecord] = []
    for place, slot in enumerate(run.order):
        engine = Provenance(fingerprint="f00d", speculation="eagle3 x 1" if slot.arm == "eagle" else None)
        records.append(LaunchRecord(arm=slot.arm, index=place, block=slot.block, started_at=AT, provenance=engine))
        level = rng.gauss(0, 0.002)
        for cell in run.cells:
            rate = RATES[slot.arm, cell.key] * math.exp(level)
            drafts = 1000 if slot.arm == "eagle" else None
            records += [
                sample(slot.arm, place, cell.key, rep, rate * math.exp(rng.gauss(0, 0.002))) for rep in range(5)
            ]
            records.append(
                CellRecord(
                    key=cell.key,
                    arm=slot.arm,
                    launch=place,
                    started_at=AT,
                    ended_at=AT,
                    drafts=drafts,
                    accepted_tokens=round(1000 * (length - 1)) if drafts else None,
                    void=(void or {}).get((slot.arm, cell.key)),
                )
            )
    return gather(run, records)


def test_every_cell_has_figure_and_verdict() -> None:
    """Eagle is faster in the one and slower in the other; the arm that cannot run says why."""
    short, long = judged_rows(measured(a_run()))
    assert [figure.arm for figure in short.figures] == ["plain", "eagle", "mtp"]
    plain, eagle, mtp = short.figures
    assert plain.verdict.claim is Conclusion.BASELINE
    assert plain.median == pytest.approx(65, rel=0.005)
    assert (plain.n, plain.launches, plain.bootstrap) == (20, 4, True)
    assert eagle.verdict.claim is Conclusion.FASTER
    assert eagle.verdict.delta == pytest.approx(68 / 65 - 1, abs=0.005)
    assert long.figures[1].verdict.claim is Conclusion.SLOWER
    assert (mtp.median, mtp.verdict.text) == (None, "impossible: the checkpoint has no MTP head")


def test_blank_cells_say_why() -> None:
    bare = gather(a_run(), [])
    assert [figure.verdict.claim for figure in judged_rows(bare)[0].figures[:2]] == [
        Conclusion.MISSING,
        Conclusion.MISSING,
    ]
    throttled = measured(a_run(), void={("eagle", SHORT): "clock fell to 820 MHz", ("plain", LONG): "HTTP 500"})
    short, long = judged_rows(throttled)
    assert short.figures[1].verdict.text == "void: clock fell to 820 MHz"
    assert long.figures[0].verdict.text == "void: HTTP 500"
    assert long.figures[1].verdict.text == "not measured: plain has no figure here"


def test_a_screen_only_hints() -> None:
    figure = judged_rows(measured(a_run(Mode.SCREEN)))[0].figures[1]
    assert figure.verdict.claim is Conclusion.SCREEN
    assert (figure.n, figure.bootstrap) == (5, False)


def test_a_run_of_two_launches_an_arm_only_hints() -> None:
    """A B B A, recorded by an earlier version: every cell and the line over all of them say how many launches."""
    before = a_run(Mode.STANDARD)
    order = tuple(LaunchSlot(arm=arm, block=at // 2) for at, arm in enumerate(("plain", "eagle", "eagle", "plain")))
    results = measured(before.replace(order=order))
    found = [row.figures[1].verdict for row in judged_rows(results)] + [overall(results)[0].verdict]
    assert {one.claim for one in found} == {Conclusion.SCREEN}
    assert found[0].text == "screen only (2 launches): looks like +4.4 %"
    assert judged_rows(measured(before))[0].figures[1].verdict.claim is Conclusion.FASTER


def test_over_all_cells_the_geometric_mean_with_the_worst_cell() -> None:
    """+4.6 % and -18.2 % are -7.5 % together, as the mean of logarithms has it; the worst cell is named."""
    eagle, mtp = overall(measured(a_run()))
    assert eagle.verdict.claim is Conclusion.SLOWER
    assert eagle.verdict.delta == pytest.approx(math.sqrt(68 / 65 * 45 / 55) - 1, abs=0.005)
    assert (eagle.worst, eagle.best, eagle.cells) == (LONG, SHORT, 2)
    assert eagle.worst_delta == pytest.approx(45 / 55 - 1, abs=0.005)
    assert (mtp.cells, mtp.verdict.claim) == (0, Conclusion.IMPOSSIBLE)


def test_speculation_is_taken_apart() -> None:
    """tok/s +4.6 % is acceptance length x 1.6 and steps/s x 0.65."""
    found = decompose(measured(a_run()), "eagle", SHORT)
    assert found is not None
    assert found.acceptance_length == pytest.approx(1.6)
    assert found.steps_per_s == pytest.approx(68 / 1.6, rel=0.005)
    assert found.steps_s.claim is Conclusion.SLOWER
    assert found.steps_s.delta == pytest.approx(68 / 65 / 1.6 - 1, abs=0.005)
    assert decompose(measured(a_run()), "plain", SHORT) is None
    assert decompose(gather(a_run(), []), "eagle", SHORT) is None
    stranger = [one.model_copy(update={"provenance": Provenance(engine="vllm")}) for one in measured(a_run()).launches]
    assert decompose(measured(a_run()).model_copy(update={"launches": tuple(stranger)}), "eagle", SHORT) is None


def test_steps_per_second_show_the_engine_where_the_texts_hide_it() -> None:
    """Acceptance from 1.1 to 2.4 by prompt leaves the gain on other texts open; that a step costs 5 % more is plain."""
    run, rng = a_run(cells=(SHORT,)), random.Random(4)
    lengths = {"plain": [1.0] * 5, "eagle": [1.1, 2.4, 1.3, 1.6, 1.2]}
    steps_s = {"plain": 65.0, "eagle": 65.0 * 0.95}
    records: list[LaunchRecord | RequestSample | CellRecord] = []
    for place, slot in enumerate(run.order):
        engine = Provenance(fingerprint="f00d", speculation="eagle3 x 2" if slot.arm == "eagle" else None)
        records.append(LaunchRecord(arm=slot.arm, index=place, block=slot.block, started_at=AT, provenance=engine))
        level = math.exp(rng.gauss(0, 0.002))
        rates = [steps_s[slot.arm] * level * length for length in lengths[slot.arm]]
        records += [sample(slot.arm, place, SHORT, rep, rate) for rep, rate in enumerate(rates)]
        drafts = round(sum(400 / length for length in lengths[slot.arm]))
        counted = {"drafts": drafts, "accepted_tokens": 2000 - drafts} if slot.arm == "eagle" else {}
        records.append(CellRecord(key=SHORT, arm=slot.arm, launch=place, started_at=AT, ended_at=AT, **counted))
    results = gather(run, records)
    found = decompose(results, "eagle", SHORT)
    assert found is not None
    assert judged_rows(results)[0].figures[1].verdict.claim is Conclusion.INCONCLUSIVE
    assert found.steps_s.claim is Conclusion.SLOWER
    assert found.steps_s.delta == pytest.approx(-0.05, abs=0.004)
    assert found.acceptance_length == pytest.approx(2000 / sum(400 / length for length in lengths["eagle"]), rel=0.001)


def test_prefill_leaves_the_fixed_time_out() -> None:
    """30 ms of scheduling make no slow prefill: the fitted rate is the true one in short contexts too."""
    results = measured(a_run())
    assert fixed_time_s(results, "plain") == pytest.approx(FIXED_S, rel=0.01)
    for key in (SHORT, LONG):
        for prompts in figures_by_launch(results, "plain", key, BenchMetric.PREFILL).values():
            assert list(prompts.values()) == pytest.approx([PREFILL] * 5, rel=0.005)
    assert judged_rows(results, BenchMetric.PREFILL)[0].figures[1].verdict.claim is Conclusion.NO_DIFFERENCE


def test_a_later_first_token_is_slower() -> None:
    results = measured(a_run())
    assert judged_rows(results, BenchMetric.TTFT)[1].figures[1].verdict.claim is Conclusion.NO_DIFFERENCE
    e2e, decode = (
        judged_rows(results, metric)[1].figures[0].median for metric in (BenchMetric.E2E, BenchMetric.DECODE)
    )
    assert e2e is not None
    assert decode is not None
    assert e2e < decode


def test_a_repetition_of_concurrent_requests_is_one_value() -> None:
    """Two streams at 60 tok/s are nearly 120 together; a repetition that lacks a stream has no value."""
    run = a_run(Mode.SCREEN, (PAIR,))
    streams = [sample("plain", 0, PAIR, rep, 60.0, stream) for rep in range(2) for stream in range(2)]
    closed = CellRecord(key=PAIR, arm="plain", launch=0, started_at=AT, ended_at=AT)
    values = figures_by_launch(gather(run, [*streams[:3], closed]), "plain", PAIR, BenchMetric.AGGREGATE)
    assert list(values[0]) == ["rep 0"]
    assert values[0]["rep 0"] == pytest.approx(120, rel=0.05)
    assert len(figures_by_launch(gather(run, [*streams[:3], closed]), "plain", PAIR, BenchMetric.DECODE)[0]) == 3


def test_only_speed_cells_are_averaged() -> None:
    results = measured(a_run())
    odd = results.run.cells[1].model_copy(update={"key": LONG.model_copy(update={"kind": Kind.MATH})})
    run = results.run.model_copy(update={"cells": (results.run.cells[0], odd)})
    assert overall(results.model_copy(update={"run": run}))[0].cells == 1


def test_every_column_says_what_it_divides() -> None:
    for metric in BenchMetric:
        assert metric.definition
        assert ("/" in metric.definition) == (metric.unit == "tok/s")


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
