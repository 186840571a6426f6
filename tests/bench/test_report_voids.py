"""Samples that do not count, with their reasons, and damaged lines of a run's records, are counted and said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash.bench.report.assemble import assemble_report, count_voids, damage_text, void_text
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Mode
from sparkdash.bench.run_folder import read_results
from sparkdash.cli.main import app

ARMS = [Arm(name="A", profile="a"), Arm(name="B", profile="b")]
CELL = CellKey(suite="seeds", context=0, output=32)
GIVEN: dict[str, Any] = {"arms": ARMS, "rates": {"A": {CELL: 60.0}, "B": {CELL: 60.0}}, "mode": Mode.SCREEN, "reps": 5}


def voided(results: Results, reasons: list[tuple[str, str]]) -> Results:
    """The first samples of an arm get these reasons."""
    samples = list(results.samples)
    for arm, reason in reasons:
        at = next(n for n, one in enumerate(samples) if one.arm == arm and one.void is None)
        samples[at] = samples[at].replace(void=reason)
    return results.replace(samples=tuple(samples))


def test_reasons_are_counted_by_arm_and_alike_ones_together(rehearse: Callable[..., Results]) -> None:
    late = [
        ("B", "the client was 7.7 ms late"),
        ("B", "the client was 12.1 ms late"),
        ("A", "the client was 9.0 ms late"),
    ]
    results = voided(rehearse(**GIVEN), [*late, ("B", "error: HTTP 500: lost")])
    found = {(one.arm, one.reason): one.samples for one in count_voids(results)}
    assert found == {
        ("B", "the client was 7.7 ms late"): 2,
        ("A", "the client was 9.0 ms late"): 1,
        ("B", "error: HTTP 500: lost"): 1,
    }
    page = render_markdown(report_page(assemble_report(results)))
    assert "## What does not count" in page
    assert "| B   | 2       | the client was 7.7 ms late |" in page


def test_a_run_in_which_everything_counts_says_nothing(rehearse: Callable[..., Results]) -> None:
    results = rehearse(**GIVEN)
    assert void_text(count_voids(results)) == damage_text(0) == ""
    assert "What does not count" not in render_markdown(report_page(assemble_report(results)))


def test_the_words_have_number_and_reason(rehearse: Callable[..., Results]) -> None:
    results = voided(
        rehearse(**GIVEN), [("A", "the box swapped"), ("B", "the box swapped"), ("B", "finish reason stop")]
    )
    assert void_text(count_voids(results)) == "3 samples do not count: 2 the box swapped; 1 finish reason stop"
    one = voided(rehearse(**GIVEN), [("A", "the box swapped")])
    assert void_text(count_voids(one)) == "1 sample does not count: 1 the box swapped"


def test_damaged_lines_are_counted_in_the_report_and_in_the_list(
    recorded: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines that a failing disk made unreadable: what they held is missing, and the owner is told."""
    place = recorded(tmp_path, **GIVEN)
    file = place / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2], lines[4] = b'{"record":"sam\xff\n', b"null\n"
    file.write_bytes(b"".join(lines))
    report = assemble_report(read_results(place))
    assert report.damaged == 2
    assert "2 lines of records.jsonl are damaged and not counted; what they held is missing." in render_markdown(
        report_page(report)
    )
    monkeypatch.setenv("SPARKDASH_BENCH_DIR", str(tmp_path))
    listed = CliRunner().invoke(app, ["bench", "list"])
    assert f"{place.name}: 2 lines of records.jsonl are damaged" in listed.stderr
    told = json.loads(CliRunner().invoke(app, ["bench", "list", "--json"]).stdout)
    assert told[0]["damaged"] == 2
    assert told[0]["void_reasons"] == []
