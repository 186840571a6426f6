"""The HTML page: one file, whole without a network, the same tables, and charts of what was measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report import formats
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.charts import BETTER, NEITHER, draw_panel, scale_ticks
from sparkdash.bench.report.layout import derive_layout
from sparkdash.bench.report.page import SIMULATED, LocalProfiles, report_charts, report_page
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey
from sparkdash.domain.profile import Published
from sparkdash.domain.weights import Attention, KvLayers, WeightBytes, WeightFacts

GRID = {
    CellKey(suite="seeds", context=context, output=output): 60.0 for context in (0, 2048) for output in (32, 150, 400)
}
ARMS = [Arm(name="plain", profile="coder"), Arm(name="<eagle>", profile="coder/eagle")]
DENSE = WeightFacts(
    origin="by hand",
    format="safetensors",
    bytes=WeightBytes(dense=2_000_000_000, experts=0, embedding=0, head=500_000_000),
    kv=(KvLayers(kind=Attention.FULL, layers=48, key_elements=512, value_elements=512),),
)
SHELF = LocalProfiles(
    published={"coder": (Published(workload="ctx 0, long", source="a page", e2e_tok_s=50.0),)},
    weights={"coder": {"target": DENSE}},
)


@pytest.fixture
def found(rehearse: Callable[..., Results]) -> Report:
    """Two arms 4 % apart; the second speculates, and its name would be markup."""
    return assemble_report(
        rehearse(
            arms=ARMS,
            rates={"plain": GRID, "<eagle>": {key: rate * 1.04 for key, rate in GRID.items()}},
            drafts={"<eagle>": (62, 31)},
            provenance={"plain": {"kv_dtype": "fp8"}, "<eagle>": {"speculation": "eagle3 k=2"}},
            wobble=0.001,
        )
    )


def charts(found: Report) -> dict[str, Any]:
    return {one.name: one for one in report_charts(found)}


def test_the_page_is_whole_small_and_asks_nobody(found: Report) -> None:
    """Its own policy forbids the browser to fetch or run anything; it stays far below a megabyte."""
    text = formats.render_html(report_page(found, None, SHELF), report_charts(found))
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert "<script" not in text
    assert not re.search(r"<(link|img)[^>]+(src|href)=", text)
    assert len(text) < 200_000
    assert SIMULATED in text
    assert "prefers-color-scheme: dark" in text


def test_names_are_text_and_never_markup(found: Report) -> None:
    text = formats.render_html(report_page(found, None, SHELF), report_charts(found))
    assert "<eagle>" not in text
    assert "&lt;eagle&gt;" in text
    assert re.findall(r'<figure id="(\w+)">', text) == ["context", "differences"]
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_every_mark_and_word_stays_inside_its_panel(found: Report) -> None:
    """A panel is no wider than a telephone, and nothing in it lies on another word."""
    for chart in (*report_charts(found), *report_charts(found, derive_layout(found, "e2e"))):
        for panel in chart.panels:
            drawing = ElementTree.fromstring(draw_panel(panel, chart.unit))
            _, _, width, height = map(float, drawing.attrib["viewBox"].split())
            assert width <= 340
            for one in drawing.iter():
                for name, most in (
                    ("x", width),
                    ("x1", width),
                    ("x2", width),
                    ("cx", width),
                    ("y", height),
                    ("cy", height),
                ):
                    assert 0 <= float(one.attrib.get(name, 0)) <= most, (chart.name, one.attrib)
            places = [(one.attrib["x"], one.attrib["y"]) for one in drawing.iter("text")]
            assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 65, (0, 20, 40, 60, 80)),
        (-3, 14, (-5, 0, 5, 10, 15)),
        (0, 0.31, (0, 0.1, 0.2, 0.3, 0.4)),
        (0, 0, (0, 0.5, 1)),
    ],
)
def test_scales_have_round_ticks(low: float, high: float, ticks: tuple[float, ...]) -> None:
    assert scale_ticks(low, high) == pytest.approx(ticks)


def test_the_charts_show_the_report_s_figures(found: Report) -> None:
    """Rates by context with their bounds, and differences coloured where they are claimed."""
    made = charts(found)
    figure = found.figure(BenchMetric.DECODE, "plain", CellKey(suite="seeds", context=0, output=32))
    assert figure is not None
    panel = made["context"].panels[0]
    assert (panel.title, panel.categories) == ("short", ("0", "2K"))
    (name, (first, _)) = panel.groups[0]
    assert (name, first.name, first.value, first.low) == ("plain", "0", figure.median, figure.low)
    ((_, rows),) = made["differences"].panels[0].groups
    colours = {row.colour for row in rows}
    assert BETTER in colours
    assert colours <= {BETTER, NEITHER}


def test_every_arm_that_runs_has_a_colour_of_its_own(rehearse: Callable[..., Results]) -> None:
    """Eight of sixteen arms of a matrix run; those that cannot have no line, and take no colour from the others."""
    arms = [Arm(name=f"{n}", profile=f"{n}", impossible="no head" if n % 4 > 1 else None) for n in range(16)]
    rates = {arm.name: GRID for arm in arms if arm.impossible is None}
    (context,) = (
        one for one in report_charts(assemble_report(rehearse(arms=arms, rates=rates))) if one.name == "context"
    )
    assert len(context.legend) == 8
    assert len({colour for _, colour in context.legend}) == 8
