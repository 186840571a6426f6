"""Paired prompts: the tests against hand-made and published values, and the reports in the published layouts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.paired_prompts import LEAST_PAIRS, paired_cells, paired_t
from sparkdash.bench.plan import suites
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.layout import load_layout, shipped_layouts
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Kind, Mode

Rehearse = Callable[..., Results]
DARWIN = (49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48)
"""Darwin's maize (Fisher 1935): p = 0.0497 by t, as R 4 prints it."""
PLAIN, DRAFT = Arm(name="plain", profile="coder"), Arm(name="plain-dflash", profile="coder/dflash")


def key(context: int, output: int = 128, **changes: Any) -> CellKey:
    return CellKey(suite="paired", context=context, output=output, **changes)


def shown(results: Results, layout: str) -> str:
    """The page with single spaces, so that no column's width matters."""
    return re.sub(" +", " ", render_markdown(report_page(assemble_report(results), load_layout(layout))))


def test_the_tests_give_the_published_values_for_darwins_maize() -> None:
    low, high, p = paired_t(DARWIN)
    assert p == pytest.approx(0.0497, abs=1e-4)
    assert (low, high) == (pytest.approx(0.0312, abs=1e-3), pytest.approx(41.835, abs=1e-3))
    assert paired_t([0.0] * 30)[2] == 1.0


def test_the_same_prompts_are_compared_one_by_one(rehearse: Rehearse) -> None:
    results = rehearse(arms=[PLAIN, DRAFT], rates={"plain": {key(2048): 12.0, key(32768): 11.0}, "plain-dflash": {key(2048): 30.0, key(32768): 22.0}},
        reps=30, mode=Mode.SCREEN, wobble=0.02,
    )  # fmt: skip
    cells = [one for one in paired_cells(results) if one.metric is BenchMetric.DECODE]
    assert [len(one.pairs) for one in cells] == [30, 30]
    assert [round(one.ratio, 2) for one in cells] == [2.5, 2.0]
    assert all(one.higher == 30 and one.p_t < 1e-8 for one in cells)
    page = shown(results, "paired")
    assert "paired N=30: " in page
    assert " TG tok/s @2K, " in page
    assert "@32K; 2.00-2.50x vs the paired baseline" in page
    assert "| Recipe | Model | Quant | Spec method | Headline (tok/s) | Status |" in page
    assert "They describe these prompts in these launches and claim nothing" in page


def test_few_prompts_are_not_compared_one_by_one(rehearse: Rehearse) -> None:
    results = rehearse(
        arms=[PLAIN, DRAFT], rates={"plain": {key(0): 12.0}, "plain-dflash": {key(0): 30.0}}, reps=LEAST_PAIRS - 1
    )
    assert paired_cells(results) == ()
    assert "The same prompts on both arms" not in render_markdown(report_page(assemble_report(results)))


def test_the_prefill_table_has_the_published_columns_and_words(rehearse: Rehearse) -> None:
    results = rehearse(
        arms=[PLAIN, DRAFT], rates={"plain": {key(2048, 32): 12.0}, "plain-dflash": {}}, reps=30, mode=Mode.SCREEN
    )
    page = shown(results, "prefill")
    assert "pp tok/s at pp2048/tg32/c1, n=30" in page
    assert "TBD" in page
    assert "measuring, 0 of 1 cells" in page


def test_a_build_is_reported_in_the_layout_of_a_lab(rehearse: Rehearse) -> None:
    rates = {key(512, 256, concurrency=count): 17.0 / count for count in (1, 2, 4)}
    results = rehearse(arms=[PLAIN], rates={"plain": rates}, mode=Mode.SCREEN,
        provenance={"plain": {"argv": ("vllm", "serve", "m", "--tensor-parallel-size", "2", "--enable-x", "--kv=fp8")}},
    )  # fmt: skip
    page = shown(results, "batch")
    assert "Config: --tensor-parallel-size=2, --enable-x, --kv=fp8" in page
    assert "| Batch | Avg completion tokens | tok/s per request | Aggregate tok/s |" in page
    assert "| 4 (concurrent) | 256 |" in page
    assert "Startup to first inference: about 1m00s." in page
    assert "What can be claimed" not in page


def test_every_shipped_layout_draws_a_run_that_measured_nothing(rehearse: Rehearse) -> None:
    results = rehearse(arms=[PLAIN, DRAFT], rates={"plain": {key(0): 12.0}, "plain-dflash": {}})
    for name in shipped_layouts():
        assert shown(results, name).startswith("# ")


def test_the_suites_of_the_published_tables_have_their_cells() -> None:
    paired = suites.load_suite("paired").planned(Mode.STANDARD)
    assert [(cell.key.context, cell.reps) for cell in paired] == [(2048, 30), (32768, 30), (131072, 30)]
    kinds = {cell.key.kind for cell in suites.load_suite("batch").planned(Mode.STANDARD)}
    assert kinds == {Kind.SPEED, Kind.PREFIX}
