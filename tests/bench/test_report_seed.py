"""The published matrix, filled: four builds by four modes, row for row as the document has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.layout import load_layout
from sparkdash.bench.report.page import SIMULATED, report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey

PUBLISHED = (Path(__file__).parent / "published" / "qwen3-coder.md").read_text().splitlines()
WHY = "Qwen3-Coder-30B-A3B has no MTP head; vLLM refuses method mtp for it"
FAMILY = "qwen3-coder-30b-nvfp4"
CONTEXTS = (0, 512, 2048, 8192, 16384)
LENGTHS = (32, 150, 400)
"""Long enough for a decode rate; the document's own lengths are 20, 150 and 400."""
BUILDS = {"vllm-next": 1.0, "": 1.0, "turbo-dual": 1.02, "turbo2": 1.05}
"""What this test makes of the builds whose rows are blank in the document: so much times turbo's figures."""


def seed_rates(title: str) -> dict[CellKey, float]:
    """The fifteen figures under a heading, or under a mode's row in the combined table."""
    start = next(n for n, line in enumerate(PUBLISHED) if title in line)
    rows = [line for line in PUBLISHED[start:] if line.startswith("| ctx=")][: len(CONTEXTS)]
    found = {}
    for context, row in zip(CONTEXTS, rows, strict=True):
        for length, text in zip(LENGTHS, row.split("|")[2:5], strict=True):
            found[CellKey(suite="seeds", context=context, output=length)] = float(text)
    return found


@pytest.fixture
def filled(rehearse: Callable[..., Results]) -> Results:
    """All sixteen arms: the document's own figures where it has some, made ones elsewhere. Simulated."""
    arms, rates, maths = [], {}, {}
    for build, factor in BUILDS.items():
        plain = "### vLLM-next NVFP4 Vanilla" if build == "vllm-next" else "**Vanilla**"
        eagle = "### vLLM-next NVFP4 +EAGLE3" if build == "vllm-next" else "**+EAGLE3 NST=1**"
        for mode in ("", "eagle3", "mtp-1", "mtp-2"):
            name = "/".join(filter(None, (FAMILY, "-".join(filter(None, (build, mode))))))
            arms.append(Arm(name=name, profile=name, impossible=WHY if "mtp" in mode else None))
            if mode in ("", "eagle3"):
                rates[name] = {one: rate * factor for one, rate in seed_rates(eagle if mode else plain).items()}
                maths[name] = {("vllm-next", ""): 37, ("vllm-next", "eagle3"): 36, ("", "eagle3"): 39}.get(
                    (build, mode), 35
                )
    return rehearse(arms=arms, rates=rates, maths=maths)


def rows(markdown: str) -> Iterator[str]:
    """Headings, rows and math lines, from the first build to the delta table; rulers and notes left out."""
    lines = markdown.splitlines()
    first = lines.index("## Baseline: vLLM-next FLASHINFER_CUTLASS (existing)")
    for line in lines[first : lines.index("## What can be claimed")]:
        if line.startswith(("#", "| ", "Math")):
            yield line


def plain(row: str) -> str:
    """Without the marks of the notes."""
    return re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]", "", row)


def test_every_row_stands_where_the_document_has_it(filled: Results) -> None:
    """What the document measured is equal to the letter; what it left blank has a figure, or a dash that says why."""
    ours = list(rows(render_markdown(report_page(assemble_report(filled), load_layout("qwen3-coder")))))
    assert len(ours) == len(PUBLISHED)
    for row, theirs in zip(ours, PUBLISHED, strict=True):
        blank = "**" not in theirs and ("| |" in theirs or (theirs + "||").split("|")[2].isspace())
        if blank or "?%" in theirs:
            assert row.split("|")[:2] == theirs.split("|")[:2] or row.startswith("Math: ")
            assert row.count("|") == theirs.count("|")
            assert not re.search(r"\| +\|", row)
        else:
            assert plain(row) == theirs


def test_what_cannot_run_says_why(filled: Results) -> None:
    """Each MTP cell is a dash with a mark, and the mark is explained under its table."""
    told = render_markdown(report_page(assemble_report(filled), load_layout("qwen3-coder")))
    table = told.split("### turbo2 Dual-Arch +MTP NST=2")[1].split("###")[0]
    assert "| ctx=16K | -¹    | -¹     | -¹   |" in table
    assert f"¹ cannot run: {WHY}" in table
    assert "Math: -" in table
    assert "Missing" not in told


def test_simulated_figures_are_labelled_and_their_definition_told(filled: Results) -> None:
    """The page opens with both."""
    top = render_markdown(report_page(assemble_report(filled), load_layout("qwen3-coder"))).split("##")[0]
    assert SIMULATED in top
    assert "tok/s is e2e: completion tokens / (last token - request sent)" in top
