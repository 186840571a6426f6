"""The HTML page: one file, whole without a network, the same tables, and charts of what was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.chart import BETTER, NEITHER
from sparkdash.bench.report.formats import html
from sparkdash.bench.report.layout import Layout, derive_layout
from sparkdash.bench.report.page import SIMULATED, LocalProfiles, report_charts, report_page
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey
from sparkdash.domain.published import Published
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


def by_end_to_end(found: Report) -> Layout:
    return derive_layout(found, "e2e")


def charts(found: Report, layout: Layout | None = None) -> dict[str, Any]:
    return {one.name: one for one in report_charts(found, layout, SHELF)}


def test_the_page_is_whole_and_asks_nobody(found: Report) -> None:
    """Its own policy forbids the browser to fetch anything; plotly's script is in it."""
    text = html.render_html(report_page(found, None, SHELF), report_charts(found, None, SHELF), html.plotly_script())
    assert "default-src 'none'" in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text.replace(html.plotly_script(), ""))
    assert html.plotly_script() in text
    assert SIMULATED in text
    assert "prefers-color-scheme: dark" in text


def test_names_are_text_and_never_markup(found: Report) -> None:
    """In tables and in the charts' data, which is JSON that reads back."""
    text = html.render_html(report_page(found, None, SHELF), report_charts(found, None, SHELF), "/* script */")
    assert "<eagle>" not in text
    assert "&lt;eagle&gt;" in text
    data = re.search(r'<script id="figures" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert {one["name"] for one in json.loads(data[1])} == {"context", "differences", "acceptance", "roofline"}


def test_the_charts_show_the_report_s_figures(found: Report) -> None:
    """Rates by context with their bounds, acceptance by position, and differences coloured where they are claimed."""
    made = charts(found)
    figure = found.figure(BenchMetric.DECODE, "plain", CellKey(suite="seeds", context=0, output=32))
    assert figure is not None
    assert made["context"].data[0]["x"] == ["0", "2K"]
    assert made["context"].data[0]["y"][0] == figure.median
    assert made["context"].layout["xaxis"]["categoryarray"] == [
        "0",
        "2K",
    ]  # also where the first arm has only the second
    (accepted,) = made["acceptance"].data
    assert accepted["y"] == [0.62, 0.31]
    (differences,) = made["differences"].data
    assert set(differences["marker"]["color"]) <= {BETTER, NEITHER}
    assert BETTER in differences["marker"]["color"]


def test_the_roofline_has_only_arms_whose_bytes_are_known(found: Report) -> None:
    """Nobody told what the other's KV cache is made of, or read its weights."""
    (only,) = charts(found)["roofline"].data
    assert only["name"] == "plain"
    ceiling = 273e9 / (2.5e9 + 48 * 1024 * (0 + 16))
    measured = found.figure(BenchMetric.DECODE, "plain", CellKey(suite="seeds", context=0, output=32))
    assert measured is not None
    assert measured.median is not None
    assert only["y"][0] == pytest.approx(measured.median / ceiling, rel=0.01)


def test_published_figures_stand_beside_their_like(found: Report) -> None:
    """End to end: hollow marks in the chart over context, and bars of their own."""
    real = found.model_copy(update={"simulated": False})
    assert "published" not in charts(found)
    made = charts(real, by_end_to_end(real))
    hollow = [trace for trace in made["context"].data if "published" in trace["name"]]
    assert [(trace["x"], trace["y"]) for trace in hollow] == [(["0"], [50.0])]
    assert [trace["x"] for trace in made["published"].data] == [[50.0], [pytest.approx(60.0, rel=0.01)]]
