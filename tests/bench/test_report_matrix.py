"""A matrix over builds that fills over many nights: the newest that counts per cell, with its run and date."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.measure.measured_engine import MeasuredEngine
from sparkdash.bench.report.arm_tables import kv_cells
from sparkdash.bench.report.blocks import Footnotes
from sparkdash.bench.report.merged_runs import merge_runs, select_runs
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.results import Provenance, Results
from sparkdash.bench.run import Arm, CellKey, Mode
from sparkdash.cli.main import app
from sparkdash.domain.profile import EngineKind
from sparkdash.paths import bench_dir

PUBLISHED = (Path(__file__).parent / "published" / "qwen3-coder.md").read_text().splitlines()
FAMILY = "qwen3-coder-30b-nvfp4"
CONTEXTS = (0, 512, 2048, 8192, 16384)
LENGTHS = (32, 150, 400)
"""Long enough for a decode rate; the document's own lengths are 20, 150 and 400."""


@pytest.mark.parametrize(
    ("tokens", "limit", "told"),
    [
        (355_000, 262_144, ("355K tokens", "1")),
        (1_400_000, 262_144, ("1.4M tokens", "5")),
        (355_000, 32_768, ("355K tokens", "-¹")),
        (355_000, None, ("355K tokens", "1")),
    ],
)
def test_users_of_a_long_context_are_whole_caches_of_it(tokens: int, limit: int | None, told: tuple[str, str]) -> None:
    """As published for two builds; an engine that serves no such context has no users of it."""
    cells = kv_cells(Provenance(kv_tokens=tokens, context_limit=limit), Footnotes())
    assert tuple(cell.text for cell in cells) == told


class ModelList:
    """Client of an engine that answers each path with these bytes."""

    def __init__(self, said: bytes) -> None:
        self.said = said

    async def get(self, _path: str, **_how: object) -> bytes:
        return self.said


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (b'{"data": [{"id": "other", "max_model_len": 4096}, {"id": "qwen", "max_model_len": 262144}]}', 262_144),
        (b'{"data": [{"id": "root/of/qwen", "max_model_len": 8192}]}', 8192),
        (b'{"data": [{"id": "qwen"}]}', None),
        (b'{"data": 3}', None),
        (b"not json", None),
    ],
)
async def test_the_longest_request_is_what_the_engine_says(said: bytes, limit: int | None) -> None:
    """The measured model's length, not that of an adapter beside it; None where the engine tells none."""
    client: Any = ModelList(said)
    engine = MeasuredEngine(client=client, kind=EngineKind.VLLM, model="qwen", engine_url="http://engine")
    assert await engine.context_limit() == limit


FIRST = datetime(2026, 11, 17, 20, 0, tzinfo=UTC)
SHORT = CellKey(suite="seeds", context=0, output=150)
LONG = CellKey(suite="seeds", context=0, output=400)
EVENINGS = {
    "vllm-next": ("### vLLM-next NVFP4 Vanilla", "### vLLM-next NVFP4 +EAGLE3", 1.0, (37, 36)),
    "": ("**Vanilla**", "**+EAGLE3 NST=1**", 1.0, (35, 39)),
    "turbo-dual": ("**Vanilla**", "**+EAGLE3 NST=1**", 1.02, (35, 35)),
    "turbo2": ("**Vanilla**", "**+EAGLE3 NST=1**", 1.05, (35, 35)),
}
"""Build by evening: the headings of its figures in the document, a factor where it has none, right answers of 50."""


def published_rates(title: str, factor: float) -> dict[CellKey, float]:
    """The fifteen figures under a heading."""
    start = next(n for n, line in enumerate(PUBLISHED) if title in line)
    rows = [line for line in PUBLISHED[start:] if line.startswith("| ctx=")][: len(CONTEXTS)]
    return {
        CellKey(suite="seeds", context=context, output=length): float(text) * factor
        for context, row in zip(CONTEXTS, rows, strict=True)
        for length, text in zip(LENGTHS, row.split("|")[2:5], strict=True)
    }


def evening(number: int, **changes: object) -> dict[str, Any]:
    at = FIRST + timedelta(days=number)
    return {"at": at, "changes": {"id": f"{at:%Y%m%d-%H%M%S}-seeds", **changes}}


@pytest.fixture
def four_evenings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]) -> list[str]:
    """A run of one build each evening, in this user's folder; simulated."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    runs = []
    for number, (build, (plain, eagle, factor, right)) in enumerate(EVENINGS.items()):
        names = ["/".join(filter(None, (FAMILY, "-".join(filter(None, (build, mode)))))) for mode in ("", "eagle3")]
        arms = [Arm(name=name, profile=name) for name in names]
        rates = {name: published_rates(title, factor) for name, title in zip(names, (plain, eagle), strict=True)}
        maths = dict(zip(names, right, strict=True))
        made = recorded(bench_dir(), arms=arms, rates=rates, maths=maths, **evening(number))
        runs.append(made.name)
    return runs


def sparkdash(*argv: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(argv), catch_exceptions=code == 0)
    assert done.exit_code == code, done.output
    return done.output


def rows(markdown: str) -> list[str]:
    """Headings, rows and math lines, from the first build to the start commands; without marks of notes and brackets."""
    lines = markdown.splitlines()
    first = lines.index("## Baseline: vLLM-next FLASHINFER_CUTLASS (existing)")
    taken = lines[first : lines.index("## Start commands") if "## Start commands" in lines else None]
    kept = [line for line in taken if line.startswith(("#", "| ", "Math"))]
    return [re.sub(r"\(([+-][0-9.]+%)\)", r"\1", re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]", "", line)) for line in kept]


def spaced(row: str) -> str:
    """A row with single spaces: a mark widens its column."""
    return re.sub(" +", " ", row)


def test_four_evenings_fill_the_published_matrix(four_evenings: list[str], tmp_path: Path) -> None:
    """Four builds by four modes, row for row; MTP is a dash with its reason; run and date stand under each table."""
    file = tmp_path / "matrix.md"
    sparkdash("bench", "export", "--matrix", "--layout", "qwen3-coder", "-o", str(file))
    text = file.read_text()
    ours = rows(text)
    assert len(ours) == len(PUBLISHED)
    for row, theirs in zip(ours, PUBLISHED, strict=True):
        blank = "**" not in theirs and ("| |" in theirs or (theirs + "||").split("|")[2].isspace())
        if blank or "?%" in theirs:
            assert row.split("|")[:2] == theirs.split("|")[:2] or row.startswith("Math: ")
            assert row.count("|") == theirs.count("|")
            assert not re.search(r"\| +\|", row)
        else:
            assert spaced(row) == spaced(theirs)
    assert "Missing" not in text
    assert SIMULATED in text.split("##")[0]
    assert "tok/s is e2e: completion tokens / (last token - request sent)" in text.split("##")[0]
    mtp = text.split("### turbo2 Dual-Arch +MTP NST=2")[1].split("###")[0]
    assert "¹ cannot run: Qwen3-Coder-30B-A3B has no MTP head" in mtp
    for build, run in zip(
        ("## Baseline", "## turbo (", "### turbo Dual-Arch V", "\n## turbo2"), four_evenings, strict=True
    ):
        table = text.split(build)[1].split("\n## ")[0]
        assert f"¹ {run[:4]}-{run[4:6]}-{run[6:8]}, run {run}" in table
    assert "faster" not in text


def test_a_blank_cell_is_filled_by_its_own_command(four_evenings: list[str], recorded: Callable[..., Path]) -> None:
    """A cell that three evenings lack is named with a command; a run of that command fills it, as all runs are read."""
    lacking = f"{FAMILY}/turbo2"
    place = bench_dir() / four_evenings[3]
    place.rename(bench_dir().parent / "away")
    shown = " ".join(sparkdash("bench", "export", "--matrix", "--layout", "qwen3-coder").split())
    assert f"`sparkdash bench {lacking} --suite seeds`" in shown
    recorded(
        bench_dir(), arms=[Arm(name=lacking, profile=lacking)], rates={lacking: published_rates("**Vanilla**", 1.0)},
        maths={lacking: 35}, mode=Mode.SCREEN, **evening(4),
    )  # fmt: skip
    shown = " ".join(sparkdash("bench", "export", "--matrix", "--layout", "qwen3-coder").split())
    assert f"`sparkdash bench {lacking} --suite seeds`" not in shown
    assert f"`sparkdash bench {lacking}-eagle3 --suite seeds`" in shown


def test_the_newest_that_counts_fills_a_cell(rehearse: Callable[..., Results]) -> None:
    """A void cell of a later night leaves the earlier one's figure; the other cell has the later one's."""
    arm = [Arm(name="A", profile="coder")]
    old = rehearse(arms=arm, rates={"A": {SHORT: 40.0, LONG: 40.0}}, **evening(0))
    new = rehearse(arms=arm, rates={"A": {SHORT: 50.0}}, voids={("A", LONG): "the box swapped"}, **evening(1))
    report = merge_runs([new, old])
    figures = {key: report.figure(BenchMetric.E2E, "A", key) for key in (SHORT, LONG)}
    assert [round(one.median or 0) for one in figures.values() if one] == [50, 40]
    assert [(one.key, one.run) for one in report.sources] == [(SHORT, new.run.id), (LONG, old.run.id)]
    assert report.filling == ()


def test_a_cell_that_no_run_has_names_the_run_to_resume(rehearse: Callable[..., Results]) -> None:
    """Where that arm's run was stopped; a complete one is measured anew, with an estimate of its time."""
    arms = [Arm(name=name, profile=name) for name in ("A", "B")]
    whole = rehearse(arms=arms, rates={"A": {SHORT: 40.0, LONG: 40.0}, "B": {SHORT: 40.0}}, **evening(1))
    other = rehearse(arms=[Arm(name="C", profile="C")], rates={"C": {SHORT: 40.0}}, **evening(0))
    found = {one.arm: one for one in merge_runs([whole, other]).filling}
    assert found["B"].command == f"sparkdash bench resume {whole.run.id}"
    assert (found["C"].command, found["C"].cells, found["C"].of) == ("sparkdash bench C --suite seeds", 1, 2)
    assert found["C"].seconds == pytest.approx(70)


@pytest.mark.parametrize(
    ("told", "words", "refused"),
    [
        ({"thinking": True}, "The thinking flag differs", True),
        ({"kv_dtype": "fp8"}, "The KV cache's type differs", False),
        ({"driver": "581"}, "The driver differs", False),
    ],
)
def test_other_work_is_refused_and_another_box_is_flagged(
    told: Mapping[str, object], words: str, refused: bool, rehearse: Callable[..., Results]
) -> None:
    before = {"thinking": False, "kv_dtype": "auto", "driver": "580"}
    nights = [
        rehearse(
            arms=[Arm(name=name, profile=name)], rates={name: {SHORT: 40.0}}, **evening(number),
            provenance={name: {**before, **(told if name == "B" else {})}},
        )
        for number, name in enumerate(("A", "B"))
    ]  # fmt: skip
    report = merge_runs(nights[::-1])
    flag = next(one for one in report.flags if words in one.text)
    assert (flag.arm, flag.refuses) == ("B", refused)
    figure = report.figure(BenchMetric.E2E, "B", SHORT)
    assert figure is not None
    assert (figure.verdict.delta is None) is refused


def test_a_profile_that_changed_between_nights_is_flagged(rehearse: Callable[..., Results]) -> None:
    """Cells of two images name their run, and the arm says so; so do cells of another box."""
    arm = [Arm(name="A", profile="coder")]
    old = rehearse(
        arms=arm, rates={"A": {SHORT: 40.0, LONG: 40.0}}, provenance={"A": {"image_digest": "one"}}, **evening(0)
    )
    host = old.run.host.replace(name="elsewhere")
    new = rehearse(
        arms=arm,
        rates={"A": {SHORT: 50.0}},
        provenance={"A": {"image_digest": "two"}},
        **evening(1, host=host),
    )
    texts = [flag.text for flag in merge_runs([new, old]).flags]
    assert any("The image changed between launches: one, two" in text for text in texts)
    assert any(f"The box of run {old.run.id} differs" in text for text in texts)


def test_only_runs_of_one_suite_and_kind_are_merged(rehearse: Callable[..., Results]) -> None:
    arm = [Arm(name="A", profile="coder")]
    nights = (
        evening(3, suite_hash="0" * 64, suite="other"), evening(2, simulated=False), evening(1),
        evening(0, suite_hash="1" * 64),
    )  # fmt: skip
    runs = [rehearse(arms=arm, rates={"A": {SHORT: 40.0}}, **one).run for one in nights]
    assert [one.id for one in select_runs(runs, "seeds")] == [runs[1].id]
    assert [one.id for one in select_runs(runs, "seeds", simulated=True)] == [runs[2].id]
    assert [one.id for one in select_runs(runs, "other")] == [runs[0].id]
    assert select_runs(runs, "none") == []


def test_show_prints_the_matrix_and_refuses_what_it_cannot_merge(four_evenings: list[str]) -> None:
    shown = sparkdash("bench", "show", "--matrix", "--simulated", "--layout", "qwen3-coder")
    assert "Merged: 4 runs" in shown
    found = json.loads(sparkdash("bench", "show", "--matrix", "--json"))
    assert {one["run"] for one in found["sources"]} == set(four_evenings)
    assert "reads all runs" in " ".join(sparkdash("bench", "show", "last", "--matrix", code=2).split())
