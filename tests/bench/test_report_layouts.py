"""One export fills the tables of each published document; the figures are those of simulated runs, and say so."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash.bench.report.layout import load_layout
from sparkdash.bench.run import Arm, CellKey, Kind, Mode
from sparkdash.cli.main import app
from sparkdash.errors import AdmissionError
from sparkdash.nodes.link_bench import LinkMeasurement, LinkRun, LinkTool, keep_run
from sparkdash.paths import bench_dir
from tests.bench.conftest import AT

GOLDEN = Path(__file__).parent / "published"
BATCH = {count: CellKey(suite="batch", context=512, output=256, concurrency=count) for count in (1, 2, 4)}
REPEATED = CellKey(suite="batch", context=2048, output=32, kind=Kind.PREFIX, warm=True)
TG128 = CellKey(suite="localmaxxing", context=128, output=128)
PP2048 = CellKey(suite="prefill", context=2048, output=32)
PAIRED = [CellKey(suite="paired", context=context, output=128) for context in (2048, 32768, 131072)]
LONG = CellKey(suite="seeds", context=0, output=400)
VLLM = {"argv": ("vllm", "serve", "m", "--quantization", "fp8"), "weights_gib": 57.64, "context_limit": 128_000}


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]) -> Callable[..., None]:
    """Records one run per suite: `night("batch", {"profile": {cell: rate}})`."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    nights = iter(range(9))

    def record(suite: str, rates: dict[str, dict[CellKey, float]], **given: Any) -> None:
        at = AT + timedelta(days=next(nights))
        arms = [Arm(name=name, profile=name) for name in rates]
        changes = {"id": f"{at:%Y%m%d-%H%M%S}-{suite}", "suite": suite, "suite_hash": suite}
        recorded(bench_dir(), arms=arms, rates=rates, mode=Mode.SCREEN, at=at, changes=changes, **given)

    return record


def exported(layout: str) -> str:
    done = CliRunner().invoke(app, ["bench", "export", "--layout", layout], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def assert_golden(name: str, text: str) -> None:
    """Compare the tables, from the first heading of a table on; the head names this version and the box."""
    file, tables = GOLDEN / f"{name}.md", text[text.index("\n## ") + 1 :]
    if os.environ.get("SPARKDASH_WRITE_GOLDEN"):
        file.write_text(tables)
    assert tables == file.read_text()
    assert "SIMULATED" in text.split("\n## ")[0]


def test_the_report_of_a_lab(night: Callable[..., None]) -> None:
    """Batches, weights per node, context and link; others' published figures beside."""
    batches = {BATCH[1]: 17.0, BATCH[2]: 12.0, BATCH[4]: 9.0}
    alone = {BATCH[1]: 58.0}
    rates = {
        "qwen3-235b": {**batches, REPEATED: 17.0},
        "gpt-oss-120b": alone,
        "gpt-oss-120b/enforce-eager": {BATCH[1]: 26.0},
    }
    night("batch", rates, provenance=dict.fromkeys(rates, VLLM), visible=0.6, hits=97)
    sent = {"tool": LinkTool.PERFTEST, "what": "ib_write_bw", "source": "local", "target": "spark2"}
    both = LinkMeasurement(**sent, gbit_s=26.6, each_gbit_s=(13.34, 13.26))
    alone_first = LinkMeasurement(**sent, gbit_s=13.4)
    keep_run(LinkRun(at=AT.timestamp(), node="spark2", measurements=(alone_first, both)))
    assert_golden("lab", exported("lab"))


def test_the_collection_of_recipes(night: Callable[..., None]) -> None:
    """Six columns and the published figure; decode, prefill and paired rows come from three suites in one export."""
    night("localmaxxing", {"qwen3.6-27b/dflash": {TG128: 32.8}})
    night("prefill", {"qwen3.5-27b": {PP2048: 30.0}, "qwen3.5-27b/flashqla-hkv": {PP2048: 33.0}}, reps=30)
    rates = {
        "qwen3.6-27b": dict(zip(PAIRED, (12.0, 11.0, 8.0), strict=True)),
        "qwen3.6-27b/aeon": dict(zip(PAIRED, (32.0, 25.0, 16.0), strict=True)),
    }
    night("paired", rates, reps=30)
    text = exported("recipes")
    assert_golden("recipes", text)
    assert "Missing: `sparkdash bench qwen3.6-27b/flashqla-longctx --suite paired`" in text


def test_the_steps_of_a_build(night: Callable[..., None]) -> None:
    """In the document's order, whatever the order of measuring; a blank row names the command that fills it."""
    steps = ("qwen3.5-122b/mtp-2", "qwen3.5-122b/hybrid", "qwen3.5-122b")
    rates = {name: {LONG: rate} for name, rate in zip(steps, (51.0, 30.8, 28.3), strict=True)}
    rates["qwen3.5-35b-a3b"] = {LONG: 112.0}
    told = {"qwen3.5-122b/mtp-2": {"kv_tokens": 355_000, "context_limit": 262_144, "image": "vllm-qwen35-v2"}}
    night("seeds", rates, provenance=told, drafts={"qwen3.5-122b/mtp-2": (90, 70)})
    text = exported("steps")
    assert_golden("steps", text)
    assert "Missing: `sparkdash bench qwen3.5-122b/hybrid-mtp-2 --suite seeds`" in text


def test_a_layout_leaves_out_the_runs_of_models_that_it_does_not_name(night: Callable[..., None]) -> None:
    """Two documents share the suite `seeds`: neither compares its models with those of the other."""
    coder, big = "qwen3-coder-30b-nvfp4/vllm-next", "qwen3.5-122b"
    night("seeds", {big: {LONG: 28.3}})
    night("seeds", {coder: {LONG: 65.0}, f"{coder}-eagle3": {LONG: 68.1}})
    coders, steps = exported("qwen3-coder"), exported("steps")
    assert (big in coders, "run 20261122-200000-seeds" in coders) == (False, True)
    assert ("Merged: 1 run;" in steps, "28.3" in steps) == (True, True)


def test_a_row_counts_its_requests_whatever_they_tell_and_a_blank_one_leaves_no_note(
    night: Callable[..., None], tmp_path: Path
) -> None:
    """A prefill is measured also where answers of 8 tokens give no decode rate."""
    short = CellKey(suite="prefill", context=2048, output=8)
    night("prefill", {"qwen3.5-27b": {short: 30.0}}, reps=30)
    file = tmp_path / "mine.yaml"
    file.write_text(
        "title: x\nsuites: [prefill]\ntables: [{title: y, given: {profile: qwen3.5-27b, suite: prefill, cell: 2048/8},"
        " columns: {Both: '{e2e}; {e2e 4096/8}', Prefill: '{prefill} pp tok/s, n={n}'}, rows: [{}]}]\n"
    )
    table = exported(str(file)).split("## y")[1]
    blank, rate = (cell.strip() for cell in table.splitlines()[4].split("|")[1:3])
    assert (blank, rate.endswith("¹ pp tok/s, n=30")) == ("", True)
    assert table.count("run 20261121-200000-prefill") == 1


def test_a_field_that_does_not_exist_is_named(night: Callable[..., None], tmp_path: Path) -> None:
    night("seeds", {"qwen3.5-122b": {LONG: 28.0}})
    file = tmp_path / "mine.yaml"
    file.write_text("title: x\ntables: [{title: y, columns: {a: '{decoed}'}, rows: [{profile: qwen3.5-122b}]}]\n")
    with pytest.raises(AdmissionError, match=r"names a field \{decoed\} that does not exist"):
        exported(str(file))
    assert load_layout(str(file)).suites == ()
