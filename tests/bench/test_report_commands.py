"""`bench show|diff|export|watch` over run folders: runs, published layouts, a matrix over many nights, and builds over time."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from sparkdash.api.answers import BenchPlan
from sparkdash.api.requests import StartRunBody
from sparkdash.bench import processes as room
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.measure.measured_engine import MeasuredEngine
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.processes import _ab_words, read_report_json, require_run, resume_run
from sparkdash.bench.report.arm_tables import kv_cells
from sparkdash.bench.report.blocks import Footnotes
from sparkdash.bench.report.layout import load_layout
from sparkdash.bench.report.merged_runs import merge_runs, select_runs
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Provenance, Results
from sparkdash.bench.run import Arm, CellKey, Host, Kind, Mode, Run
from sparkdash.bench.watch import Build, Outlook, Watch, pinned_image, watch_profile
from sparkdash.cli.bench.progress import plan_document
from sparkdash.cli.main import app
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.errors import AdmissionError, HostError
from sparkdash.host.command import CommandResult
from sparkdash.nodes.link_bench import LinkMeasurement, LinkRun, LinkTool, keep_run
from sparkdash.paths import bench_dir
from tests.bench.conftest import AT, evening, key, sparkdash

PUBLISHED = (Path(__file__).parent / "published" / "qwen3-coder.md").read_text().splitlines()
FAMILY = "qwen3-coder-30b-nvfp4"
CONTEXTS = (0, 512, 2048, 8192, 16384)
LENGTHS = (32, 150, 400)
"""Long enough for a decode rate; the document's own lengths are 20, 150 and 400."""


@pytest.mark.parametrize(("tokens", "limit", "told"), [
    (355_000, 262_144, ("355K tokens", "1")), (1_400_000, 262_144, ("1.4M tokens", "5")),
    (355_000, 32_768, ("355K tokens", "-¹")), (355_000, None, ("355K tokens", "1")),
])  # fmt: skip
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


@pytest.mark.parametrize(("said", "limit"), [
    (b'{"data": [{"id": "other", "max_model_len": 4096}, {"id": "qwen", "max_model_len": 262144}]}', 262_144),
    (b'{"data": [{"id": "root/of/qwen", "max_model_len": 8192}]}', 8192), (b'{"data": [{"id": "qwen"}]}', None),
    (b'{"data": 3}', None), (b"not json", None),
])  # fmt: skip
async def test_the_longest_request_is_what_the_engine_says(said: bytes, limit: int | None) -> None:
    """The measured model's length, not that of an adapter beside it; None where the engine tells none."""
    client: Any = ModelList(said)
    engine = MeasuredEngine(client=client, kind=EngineKind.VLLM, model="qwen", engine_url="http://engine")
    assert await engine.context_limit() == limit


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


@pytest.fixture
def four_evenings(recorded: Callable[..., Path]) -> list[str]:
    """A run of one build each evening, in this user's folder; simulated."""
    runs = []
    for number, (build, (plain, eagle, factor, right)) in enumerate(EVENINGS.items()):
        names = ["/".join(filter(None, (FAMILY, "-".join(filter(None, (build, mode)))))) for mode in ("", "eagle3")]
        arms = [Arm(name=name, profile=name) for name in names]
        rates = {name: published_rates(title, factor) for name, title in zip(names, (plain, eagle), strict=True)}
        maths = dict(zip(names, right, strict=True))
        made = recorded(bench_dir(), arms=arms, rates=rates, maths=maths, **evening(number))
        runs.append(made.name)
    return runs


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


@pytest.mark.parametrize(("told", "words", "refused"), [
    ({"thinking": True}, "The thinking flag differs", True),
    ({"kv_dtype": "fp8"}, "The KV cache's type differs", False), ({"driver": "581"}, "The driver differs", False),
])  # fmt: skip
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
        arms=arm, rates={"A": {SHORT: 50.0}}, provenance={"A": {"image_digest": "two"}}, **evening(1, host=host)
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


def test_a_plan_tells_launches_cells_time_and_the_other_suites() -> None:
    suite = suites.load_suite("smoke")
    arms = (Arm(name="a", profile="a"), Arm(name="b", profile="b"), Arm(name="c", profile="c", impossible="no head"))
    run = run_plan.new_run(suite, arms, Mode.STANDARD)
    daemon = DaemonInfo(version="1", host="h", pid=1, started_at=1.0, runtime="podman", url="u")
    world = Snapshot(seq=1, at=1.0, daemon=daemon)
    speeds = {"a": run_plan.KnownSpeeds(launch_s=60.0, decode_tok_s=50.0, source="published")}
    plan = plan_document(Results(run=run), suite, speeds, 600.0, world)
    assert BenchPlan.model_validate_json(plan.model_dump_json()) == plan
    assert plan.order == tuple(slot.arm for slot in run.order)
    assert sorted(plan.order) == ["a", "a", "a", "b", "b", "b"]
    assert (plan.cells, plan.gaps, plan.expected_s, plan.resumes) == (len(run.cells), 6 * len(run.cells), 600.0, None)
    assert [arm.impossible for arm in plan.arms] == [None, None, "no head"]
    assert (plan.arms[0].launch_s, plan.arms[1].launch_s) == (60.0, None)
    assert {"smoke", "seeds", "classes"} <= {one.name for one in plan.suites}


def test_names_of_profiles_are_never_options_of_the_command() -> None:
    wish = StartRunBody(profiles=["--yes", "b"], suite="smoke", mode="careful", reps=3)
    words = _ab_words(wish, "--dry-run")
    assert words[-3:] == ["--", "--yes", "b"]
    assert words[2:-3] == ["--suite", "smoke", "--mode", "careful", "--reps", "3", "--dry-run", "--json"]


ID = "20261121-200000-seeds"


async def test_runs_and_a_report_are_told_and_a_missing_one_is_refused(recorded: Callable[..., Path]) -> None:
    """As `bench show --json` writes them; a demo asks for simulated ones only, and a name is never an option."""
    for changes in ({}, {"id": "20261120-200000-real", "simulated": False}):
        recorded(
            bench_dir(),
            arms=[Arm(name="plain", profile="coder")],
            rates={"plain": {key(0, 400): 60.0}},
            changes=changes,
        )
    assert [one.id for one in TypeAdapter(list[Run]).validate_json(await read_report_json(None, simulated=True))] == [
        ID
    ]
    assert Report.model_validate_json(await read_report_json("last")).run.id == ID
    with pytest.raises(AdmissionError) as caught:
        await read_report_json("--help")
    assert (caught.value.code, caught.value.status) == ("run_not_found", 404)


@pytest.mark.parametrize("run", ["", "end", "2030", "../bench", "x" * 5000, "\0"])
async def test_no_process_is_started_for_a_run_that_there_is_not(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(*_: object, **__: object) -> CommandResult:
        raise AssertionError("a process was started")

    monkeypatch.setattr(room.command, "run_command", call)
    (bench_dir() / ID).mkdir(parents=True)
    (bench_dir() / ID / "run.json").touch()
    for ask in (read_report_json, require_run):
        with pytest.raises(AdmissionError) as caught:
            await ask(run)
        assert (caught.value.code, caught.value.status) == ("run_not_found", 404)


async def test_a_command_that_gives_no_reason_is_told_by_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(*_: object, **__: object) -> CommandResult:
        return CommandResult(1, "", "Traceback\nOSError: No space left on device\n")

    monkeypatch.setattr(room.command, "run_command", call)
    (bench_dir() / ID).mkdir(parents=True)
    (bench_dir() / ID / "run.json").touch()
    assert await resume_run("last") == "It said: OSError: No space left on device"
    with pytest.raises(HostError, match="The runs cannot be read: OSError: No space"):
        await read_report_json("last")


GRID = {key(context, output): 60.0 for context in (0, 2048) for output in (32, 150, 400)}
ARMS = [Arm(name="plain", profile="coder"), Arm(name="eagle", profile="coder/eagle")]


@pytest.fixture
def runs(recorded: Callable[..., Path]) -> list[str]:
    ids = ["20261120-200000-seeds", "20261121-200000-seeds"]
    for run in ids:
        recorded(bench_dir(), arms=ARMS, rates={"plain": GRID, "eagle": GRID}, changes={"id": run})
    return ids


def test_show_lists_the_runs_and_shows_one(runs: list[str]) -> None:
    assert [line.split()[0] for line in sparkdash("bench", "show").splitlines()[1:]] == runs[::-1]
    shown = sparkdash("bench", "show", "20261120", "--metric", "e2e")
    assert "SIMULATED" in shown
    assert "60.0 [60.0, 60.0]" in shown
    assert json.loads(sparkdash("bench", "show", "last", "--json"))["run"]["id"] == runs[1]


def test_a_run_that_is_not_understood_keeps_nobody_from_the_others(runs: list[str]) -> None:
    odd = bench_dir() / "20991231-000000-x"
    odd.mkdir()
    (odd / "run.json").write_text('{"format": 99}')
    done = CliRunner().invoke(app, ["bench", "show", "--json"], catch_exceptions=False)
    assert [one["id"] for one in json.loads(done.stdout)] == runs[::-1]
    assert "20991231-000000-x/run.json is no run that this sparkdash understands" in done.stderr


def test_export_writes_a_file_or_stdout(runs: list[str], tmp_path: Path) -> None:
    sparkdash("bench", "export", "last", "-o", str(tmp_path / "out"))
    text = (tmp_path / "out").read_text()
    assert text.startswith("# eagle against plain: seeds on rehearsal")
    assert sparkdash("bench", "export", runs[1]) == text


def test_what_is_asked_wrongly_is_answered_in_words(runs: list[str]) -> None:
    for argv, words in (
        (("show", "1999"), "There is no run 1999"),
        (("show", "last", "--metric", "tpot"), "The figure tpot does not exist"),
    ):
        with pytest.raises(AdmissionError, match=words):
            CliRunner().invoke(app, ["bench", *argv], catch_exceptions=False)
    assert runs


GOLDEN = Path(__file__).parent / "published"
BATCH = {count: CellKey(suite="batch", context=512, output=256, concurrency=count) for count in (1, 2, 4)}
REPEATED = CellKey(suite="batch", context=2048, output=32, kind=Kind.PREFIX, warm=True)
TG128 = CellKey(suite="localmaxxing", context=128, output=128)
PP2048 = CellKey(suite="prefill", context=2048, output=32)
PAIRED = [CellKey(suite="paired", context=context, output=128) for context in (2048, 32768, 131072)]
VLLM = {"argv": ("vllm", "serve", "m", "--quantization", "fp8"), "weights_gib": 57.64, "context_limit": 128_000}


@pytest.fixture
def night(recorded: Callable[..., Path]) -> Callable[..., None]:
    """Records one run per suite: `night("batch", {"profile": {cell: rate}})`."""
    nights = iter(range(9))

    def record(suite: str, rates: dict[str, dict[CellKey, float]], **given: Any) -> None:
        arms = [Arm(name=name, profile=name) for name in rates]
        when = evening(next(nights), suite, suite=suite, suite_hash=suite)
        recorded(bench_dir(), arms=arms, rates=rates, mode=Mode.SCREEN, **when, **given)

    return record


def exported(layout: str) -> str:
    return sparkdash("bench", "export", "--layout", layout)


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


CELLS = [CellKey(suite="seeds", context=context, output=400) for context in (0, 2048)]
IMAGE = "registry.example:5000/vllm:26.04"
OLD = {"image": IMAGE, "image_digest": f"sha256:{'a' * 64}", "driver": "580.95", "kernel": "6.11.0"}
NEW = {**OLD, "image_digest": f"sha256:{'b' * 64}", "driver": "581.10"}
CODER = Arm(name="coder", profile="coder")


def measured(number: int, build: Mapping[str, Any], factor: float = 1.0, **changes: Any) -> dict[str, Any]:
    """Rehearse a run of that evening; half a per cent up or down in turn."""
    rate = 60.0 * factor * (1.005 if number % 2 else 0.995)
    rates = {"coder": dict.fromkeys(CELLS, rate)}
    given = {"arms": [CODER], "rates": rates, "provenance": {"coder": build}, "mode": Mode.SCREEN}
    return {**given, **evening(number, **changes)}


def watched(
    rehearse: Callable[..., Results], nights: Sequence[dict[str, Any]], metric: BenchMetric = BenchMetric.DECODE
) -> Watch:
    return watch_profile([rehearse(**one) for one in nights], "coder", metric)


@pytest.mark.parametrize(("factor", "outlook"), [(0.9, Outlook.SLOWER), (1.1, Outlook.FASTER), (0.97, Outlook.STEADY)])
def test_large_changes_between_the_last_two_builds_are_mentioned(
    rehearse: Callable[..., Results], factor: float, outlook: Outlook
) -> None:
    """Four evenings before and two after the pull."""
    found = watched(rehearse, [*(measured(n, OLD) for n in range(4)), *(measured(n, NEW, factor) for n in (4, 5))])
    assert found.change is not None
    assert found.change.outlook is outlook
    assert found.change.delta == pytest.approx(factor - 1, abs=0.001)
    assert [len(one.evenings) for one in found.periods] == [4, 2]


def test_a_time_that_grows_looks_slower(rehearse: Callable[..., Results]) -> None:
    found = watched(rehearse, [measured(0, OLD), measured(2, NEW, 0.8)], BenchMetric.TTFT)
    assert found.change is not None
    assert found.change.outlook is Outlook.SLOWER


def test_other_work_and_other_boxes_are_left_out(rehearse: Callable[..., Results]) -> None:
    """With reasoning on, or on another box, the figures are others'; real runs do not stand beside simulated ones."""
    nights = [
        measured(0, OLD | {"thinking": True}, 0.5),
        measured(1, OLD, 0.5, host=Host(name="another")),
        measured(2, OLD | {"engine": "vllm"}, 0.5, simulated=True),
        measured(3, OLD | {"thinking": False}),
        measured(5, NEW | {"thinking": False}),
    ]
    found = watched(rehearse, nights)
    assert found.left_out == 3
    assert [one.evenings[0].run for one in found.periods] == ["20261124-200000-seeds", "20261126-200000-seeds"]


def test_builds_of_different_suites_are_not_known_to_differ(rehearse: Callable[..., Results]) -> None:
    found = watched(rehearse, [measured(0, OLD), measured(2, NEW, 0.5, suite_hash="beef" * 16)])
    assert found.change is not None
    assert (found.change.outlook, found.change.cells) == (Outlook.UNKNOWN, ())


def test_a_build_that_came_back_is_a_period_of_its_own(rehearse: Callable[..., Results]) -> None:
    found = watched(rehearse, [measured(0, OLD), measured(2, NEW, 0.8), measured(4, OLD)])
    assert len(found.periods) == 3
    assert found.change is not None
    assert found.change.outlook is Outlook.FASTER


@pytest.mark.parametrize(("image", "digest", "pinned"), [
    (IMAGE, "sha256:aa", "registry.example:5000/vllm@sha256:aa"), ("vllm", "sha256:aa", "vllm@sha256:aa"),
    ("vllm:1@sha256:bb", "sha256:aa", "vllm@sha256:aa"),
    ("vllm:1", "docker.io/vllm@sha256:aa", "docker.io/vllm@sha256:aa"), ("localhost/mine:1", "0123abcd", "0123abcd"),
    ("vllm:1", None, "vllm:1"),
])  # fmt: skip
def test_the_way_back_names_the_image_by_its_digest(image: str, digest: str | None, pinned: str) -> None:
    assert pinned_image(Build(image=image, image_digest=digest)) == pinned


def watch(*argv: str) -> tuple[int, str]:
    """Exit status and output of the command."""
    done = CliRunner().invoke(app, ["bench", "watch", *argv])
    return done.exit_code, done.output


def test_the_command_says_what_changed_and_how_to_go_back(
    recorded: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    recorded(bench_dir(), **measured(0, OLD))
    status, told = watch("coder")
    assert (status, "One build so far" in told, "SIMULATED" in told) == (0, True, True)
    recorded(bench_dir(), **measured(2, NEW, 0.9))
    status, told = watch("coder")
    assert status == 1
    assert "The newest build looks slower: (-10.0%) decode over 2 cells; 1 evening against 1." in told
    assert f"image: registry.example:5000/vllm@sha256:{'a' * 64}" in told
    assert "581.10" in told
    status, told = watch("coder", "--json")
    assert (status, json.loads(told)["change"]["outlook"]) == (1, "looks slower")


def test_a_profile_that_was_never_measured_says_how_to() -> None:
    done = CliRunner().invoke(app, ["bench", "watch", "coder"])
    assert done.exit_code != 0
    assert "coder has no decode figure in any recorded run" in str(done.exception)
