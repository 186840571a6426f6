"""Reports: figures with verdicts, blanks with what would fill them, and comparisons that are refused."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.report.assemble import add_math_scores, assemble_report, count_voids, void_text
from sparkdash.bench.report.formats import print_page, render_markdown
from sparkdash.bench.report.layout import derive_layout, load_layout, shipped_layouts
from sparkdash.bench.report.page import LocalProfiles, conclusion, report_page
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Kind, Mode
from sparkdash.bench.run_folder import read_results
from sparkdash.cli.main import app
from sparkdash.errors import AdmissionError
from sparkdash.paths import bench_dir
from tests.bench.conftest import key

SCHEMA = Path(__file__).parent / "published" / "report.schema.json"
Rehearse = Callable[..., Results]
GRID = {key(context, output): 60.0 for context in (0, 2048) for output in (32, 150, 400)}
LONG = key(0, 400)
PLAIN, EAGLE, MTP = (
    Arm(name="plain", profile="coder"),
    Arm(name="plain-eagle", profile="coder/eagle"),
    Arm(name="mtp", profile="coder/mtp", impossible="no MTP head"),
)
PAIR: dict[str, Any] = {"arms": [PLAIN, EAGLE], "rates": {"plain": GRID, "plain-eagle": GRID}}


def faster(factor: float) -> dict[CellKey, float]:
    return {one: rate * factor for one, rate in GRID.items()}


def told(results: Results, **given: Any) -> str:
    return render_markdown(report_page(assemble_report(results), **given))


def voided(results: Results, reasons: list[tuple[str, str]]) -> Results:
    """The first samples of an arm get these reasons."""
    samples = list(results.samples)
    for arm, reason in reasons:
        at = next(n for n, one in enumerate(samples) if one.arm == arm and one.void is None)
        samples[at] = samples[at].replace(void=reason)
    return results.replace(samples=tuple(samples))


def test_reasons_are_counted_by_arm_and_alike_ones_together(rehearse: Rehearse) -> None:
    late = [(EAGLE.name, "the client was 7.7 ms late"), (EAGLE.name, "the client was 12.1 ms late")]
    late += [(PLAIN.name, "the client was 9.0 ms late"), (EAGLE.name, "error: HTTP 500: lost")]
    results = voided(rehearse(**PAIR), late)
    assert {(one.arm, one.reason): one.samples for one in count_voids(results)} == {
        (EAGLE.name, "the client was 7.7 ms late"): 2,
        (PLAIN.name, "the client was 9.0 ms late"): 1,
        (EAGLE.name, "error: HTTP 500: lost"): 1,
    }
    page = told(results)
    assert "## What does not count" in page
    assert "| plain-eagle | 2       | the client was 7.7 ms late |" in page
    assert "What does not count" not in told(rehearse(**PAIR))


@pytest.mark.parametrize(("reasons", "words"), [
    ([], ""), ([("plain", "the box swapped")], "1 sample does not count: 1 the box swapped"),
    ([("plain", "the box swapped"), ("plain-eagle", "the box swapped"), ("plain-eagle", "finish reason stop")],
     "3 samples do not count: 2 the box swapped; 1 finish reason stop"),
])  # fmt: skip
def test_the_words_have_number_and_reason(rehearse: Rehearse, reasons: list[tuple[str, str]], words: str) -> None:
    assert void_text(count_voids(voided(rehearse(**PAIR), reasons))) == words


def test_damaged_lines_are_counted_in_the_report_and_in_the_list(recorded: Callable[..., Path]) -> None:
    """Two lines that a failing disk made unreadable: what they held is missing, and the owner is told."""
    place = recorded(bench_dir(), **PAIR)
    file = place / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2], lines[4] = b'{"record":"sam\xff\n', b"null\n"
    file.write_bytes(b"".join(lines))
    report = assemble_report(read_results(place))
    assert report.damaged == 2
    assert "2 lines of records.jsonl are damaged and not counted; what they held is missing." in render_markdown(
        report_page(report)
    )
    listed = CliRunner().invoke(app, ["bench", "show"])
    assert f"{place.name}: 2 lines of records.jsonl are damaged" in listed.stderr
    told = json.loads(CliRunner().invoke(app, ["bench", "show", "last", "--json"]).stdout)
    assert (told["damaged"], told["voids"]) == (2, [])


def test_the_line_over_all_cells_is_of_the_metric_that_the_table_shows(rehearse: Rehearse) -> None:
    """A rate that rises by 4 % and a time that falls by as much."""
    results = rehearse(arms=[PLAIN, EAGLE], rates={"plain": GRID, "plain-eagle": faster(1.04)}, wobble=0.001)
    over_all = {table.metric: table.overall[0].verdict for table in assemble_report(results).tables if table.overall}
    assert over_all[BenchMetric.DECODE].delta == pytest.approx(0.04, abs=0.002)
    assert over_all[BenchMetric.TTFT].delta == pytest.approx(-0.04, abs=0.002)
    layout = derive_layout(assemble_report(results), "ttft")
    assert f"All {len(GRID)} cells (ttft, geometric mean): faster -3.8 %" in told(results, layout=layout)


def test_what_cannot_be_claimed_stands_in_brackets(rehearse: Rehearse) -> None:
    arms, rates = [PLAIN, EAGLE], {"plain": GRID, "plain-eagle": faster(1.2)}
    screened = told(rehearse(arms=arms, rates=rates, mode=Mode.SCREEN))
    assert "(+20.0%)" in screened
    assert "In brackets: a difference that these measurements cannot claim." in screened
    over_all = next(line for line in screened.splitlines() if "geometric mean" in line)
    assert over_all.count("(+20.0%)") == 2, "the worst and the best cell"
    assert "screen only: looks like +20.0 %" in screened


def test_blank_cells_stay_and_say_what_fills_them(rehearse: Rehearse) -> None:
    """Ten seconds a cell and a minute to start, by this run's own pace: three launches lack one cell."""
    half = {one: rate for one, rate in GRID.items() if one != LONG}
    out = told(rehearse(arms=[PLAIN, EAGLE], rates={"plain": GRID, "plain-eagle": half}))
    assert "| ctx=0   | 64.6  | 66.2   |      |" in out.split("## plain-eagle\n")[1]
    assert "Missing 3 of 18 cells over 3 launches, about 3m30s: `sparkdash bench resume 20261121-200000-seeds`" in out


def test_arms_of_a_layout_that_were_never_measured_say_how_to(rehearse: Rehearse) -> None:
    plain = Arm(name="turbo", profile="qwen3-coder-30b-nvfp4")
    local = LocalProfiles(cannot_run={"qwen3-coder-30b-nvfp4/turbo2-mtp-1": "no MTP head"})
    out = told(rehearse(arms=[plain], rates={"turbo": GRID}), layout=load_layout("qwen3-coder"), local=local)
    assert "Missing: `sparkdash bench qwen3-coder-30b-nvfp4/turbo2 --suite seeds`" in out
    assert "¹ cannot run: no MTP head" in out.split("### turbo2 Dual-Arch +MTP NST=1")[1].split("###")[0]


def test_a_void_cell_says_why(rehearse: Rehearse) -> None:
    void = "clock fell to 820 MHz"
    out = told(rehearse(arms=[PLAIN], rates={"plain": GRID}, voids={("plain", LONG): void}))
    assert f"¹ void: {void}" in out


def test_a_warm_column_stands_beside_the_cold_ones(rehearse: Rehearse) -> None:
    """Where a context was not measured warm there is a dash; the published layout has cold columns only."""
    results = rehearse(arms=[PLAIN], rates={"plain": {**GRID, key(2048, 150, warm=True): 72.0}})
    out = told(results)
    assert "| Context | short | medium | long | medium, warm |" in out
    assert "| ctx=0   | 64.6  | 66.2   | 66.5 | -            |" in out
    assert "| ctx=2K  | 64.6  | 66.2   | 66.5 | 79.5         |" in out
    plain = PLAIN.model_copy(update={"profile": "qwen3-coder-30b-nvfp4/turbo2"})
    assert "warm |" not in told(rehearse(arms=[plain], rates={"plain": GRID}), layout=load_layout("qwen3-coder"))


def test_right_answers_come_from_another_run(rehearse: Rehearse) -> None:
    """By profile; an arm that thought in one of them and not in the other gets none, and is told."""
    speed = assemble_report(rehearse(**PAIR))
    asked = [PLAIN.model_copy(update={"name": "p"}), EAGLE.model_copy(update={"name": "e"})]
    questions = rehearse(arms=asked, rates={}, maths={"p": 37, "e": 36}, changes={"id": "m", "suite_hash": "beef" * 16})
    both = add_math_scores(speed, assemble_report(questions))
    assert [(one.arm, one.share) for one in both.scores] == [("plain", 0.74), ("plain-eagle", 0.72)]
    assert both.flags == ()
    thought = rehearse(
        arms=[PLAIN, EAGLE],
        rates={"plain": GRID, "plain-eagle": GRID},
        provenance={"plain": {"thinking": False}, "plain-eagle": {"thinking": False}},
    )
    other = rehearse(arms=asked, rates={}, maths={"p": 37}, provenance={"p": {"thinking": True}}, changes={"id": "m"})
    told = add_math_scores(assemble_report(thought), assemble_report(other))
    assert told.scores == ()
    assert "Math of m: The thinking flag differs: off in plain, on in p." in [flag.text for flag in told.flags]
    real = rehearse(arms=asked, rates={}, maths={"p": 37}, changes={"id": "m", "simulated": False})
    assert add_math_scores(speed, assemble_report(real)).scores == (), "simulated and real ones do not mix"


@pytest.mark.parametrize(("metric", "head"), [("ttft", "ttft per request (s)"), ("aggregate", "tok/s together")])
def test_a_column_has_the_unit_of_the_shown_metric(rehearse: Rehearse, metric: str, head: str) -> None:
    results = rehearse(arms=[PLAIN], rates={"plain": {key(512, 256): 17.0, key(512, 256, concurrency=2): 12.0}})
    out = told(results, layout=derive_layout(assemble_report(results), metric))
    assert out.split("| Batch |")[1].splitlines()[0] == f" Avg completion tokens | {head} | Aggregate tok/s |"


def test_the_batch_table(rehearse: Rehearse) -> None:
    rates = {key(512, 256): 17.0, key(512, 256, concurrency=2): 12.0, key(512, 256, concurrency=4): 9.0}
    out = told(rehearse(arms=[PLAIN], rates={"plain": rates}), layout=None)
    table = out.split("| Batch |")[1].splitlines()
    assert table[0] == " Avg completion tokens | tok/s per request | Aggregate tok/s |"
    assert [row.split("|")[1:3] for row in table[2:5]] == [
        [" 1 (serial) ", " 256 "],
        [" 2 (concurrent) ", " 256 "],
        [" 4 (concurrent) ", " 256 "],
    ]
    each, together = ([row.split("|")[at].strip() for row in table[2:5]] for at in (3, 4))
    assert together == ["17.0", "24.0", "36.0"], (
        "tokens over the time from the first start to the last end, in each row"
    )
    assert float(each[0]) > 17.0, "of one request it is less than its decode rate, by the time to its first token"


def test_batches_of_several_contexts_say_which(rehearse: Rehearse) -> None:
    crowds = {key(context, 128, concurrency=2): 12.0 for context in (2048, 6144)}
    out = told(rehearse(arms=[PLAIN], rates={"plain": {**crowds, key(512, 64, concurrency=2, text="code"): 9.0}}))
    head, rows = out.split("| Context | Batch |")[1].split("\n\n")[0].split("\n", 1)
    assert head.split("|")[0] == " Avg completion tokens "
    assert [row.split("|")[1:3] for row in rows.splitlines()[1:]] == [
        [" ctx=2K ", " 2 (concurrent) "],
        [" ctx=6K ", " 2 (concurrent) "],
    ]


def test_a_figure_that_the_answers_do_not_tell_is_no_blank(rehearse: Rehearse) -> None:
    """A prompt of twenty tokens has no prefill rate, and nothing would fill it."""
    found = assemble_report(rehearse(arms=[PLAIN], rates={"plain": GRID}))
    out = render_markdown(report_page(found, derive_layout(found, "prefill")))
    assert "| ctx=0   | -¹" in out
    assert "¹ not measured: these answers do not tell it" in out


@pytest.mark.parametrize(("changes", "command"), [
    ({"seed": 7}, "sparkdash bench coder --suite seeds --seed 7"),
    ({"reps": 9}, "sparkdash bench coder --suite seeds --reps 9 --seed 42"),
    ({"suite_file": "~/my suites/s.yaml"}, "sparkdash bench coder --suite ~/'my suites/s.yaml' --seed 42"),
])  # fmt: skip
def test_the_command_measures_the_same_again(rehearse: Rehearse, changes: dict[str, Any], command: str) -> None:
    assert f"```bash\n{command}\n```" in told(rehearse(arms=[PLAIN], rates={"plain": GRID}, changes=changes))


def test_a_single_value_has_no_bounds(rehearse: Rehearse) -> None:
    """`65.0 [65.0, 65.0]` would claim that nothing varies."""
    both: dict[str, Any] = {**PAIR, "mode": Mode.SCREEN}
    assert "66.5 [66.5, 66.5]" in told(rehearse(**both))
    assert "66.5 [" not in told(rehearse(**both, reps=1))


def test_lengths_are_called_as_the_suite_says(rehearse: Rehearse) -> None:
    """One that it does not name is told in tokens; the published short is that of a suite that has the word."""
    named = {"lengths": {"brief": 32, "long": 150}}
    out = told(rehearse(arms=[PLAIN], rates={"plain": GRID}, changes=named))
    assert "| Context | brief | long | 400 tokens |" in out


def test_the_table_over_the_baseline(rehearse: Rehearse) -> None:
    """Steps over the baseline, with their images; titles in English where no published document has others."""
    results = rehearse(
        arms=[PLAIN, EAGLE, MTP],
        rates={"plain": GRID, "plain-eagle": faster(1.5)},
        provenance={"plain": {"image": "step:0"}, "plain-eagle": {"image": "step:1", "speculation": "eagle3 k=1"}},
    )
    out = told(results)
    rows = out.split("## Comparison (ctx=0 long)")[1].splitlines()[2:7]
    assert rows == [
        "| Build | tok/s | Gain | Image |",
        "|-------|-------|------|-------|",
        "| plain | 66.5 | — | step:0 |",
        "| plain-eagle | 99.8 | +50.0% | step:1 |",
        "| mtp | -¹ | -¹ | — |",
    ]


def test_speculation_is_taken_apart(rehearse: Rehearse) -> None:
    out = told(rehearse(**PAIR, drafts={"plain-eagle": (62, 31)}))
    assert "| ctx=0 long | 1.93 | 0.62 0.31 | 34.5 |" in " ".join(out.split("## What speculation did")[1].split())


@pytest.mark.parametrize(
    ("field", "here", "there", "words"),
    [
        ("thinking", True, False, "The thinking flag differs: on in plain-eagle, off in plain."),
        ("temperature", 0.0, 1.0, "The temperature differs: 0.0 in plain-eagle, 1.0 in plain."),
        ("tokenizer_sha256", "aa", "bb", "The tokenizer differs: aa in plain-eagle, bb in plain."),
        ("engine", "sim", "vllm", "Simulated or real differs: on in plain-eagle, off in plain."),
    ],
)
def test_what_would_lie_is_refused(rehearse: Rehearse, field: str, here: Any, there: Any, words: str) -> None:
    """The figures stand, no difference between them is told, and the page says why."""
    results = rehearse(
        arms=[PLAIN, EAGLE],
        rates={"plain": GRID, "plain-eagle": faster(1.1)},
        provenance={"plain": {field: there}, "plain-eagle": {field: here}},
    )
    found = assemble_report(results)
    assert [flag.text for flag in found.flags if flag.refuses] == [words]
    figure = found.figure(BenchMetric.DECODE, "plain-eagle", LONG)
    assert figure is not None
    assert figure.median == pytest.approx(73.2, abs=0.1)
    assert figure.verdict.claim is Conclusion.VOID
    out = told(results)
    assert words in out
    assert "+10" not in out


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("driver", ("580.1", "590.2"), "The driver differs: 590.2 in plain-eagle, 580.1 in plain."),
        ("kv_dtype", ("bfloat16", "fp8"), "The KV cache's type differs: fp8 in plain-eagle, bfloat16 in plain."),
        ("kv_dtype", ("bfloat16", None), "The KV cache's type of plain-eagle was not told, so it may differ"),
    ],
)
def test_what_may_be_compared_itself_is_told(
    rehearse: Rehearse, field: str, values: tuple[str, str | None], words: str
) -> None:
    results = rehearse(
        arms=[PLAIN, EAGLE],
        rates={"plain": GRID, "plain-eagle": faster(1.1)},
        provenance={arm: {field: value} for arm, value in zip(("plain", "plain-eagle"), values, strict=True)},
    )
    out = told(results)
    assert f"Mind (plain-eagle): {words}" in out
    assert "+10.0%" in out


def shape(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: shape(one) for name, one in schema.items() if not (name == "description" and isinstance(one, str))
        }
    return [shape(one) for one in schema] if isinstance(schema, list) else schema


def test_the_json_form_is_stable(rehearse: Rehearse) -> None:
    """The schema is the published one, and a report reads back equal. A change is written down there on purpose."""
    found = assemble_report(rehearse(**PAIR))
    assert json.loads(SCHEMA.read_text()) == shape(Report.model_json_schema())
    assert Report.model_validate_json(found.model_dump_json()) == found


def test_the_terminal_shows_the_same_page_in_eighty_columns(rehearse: Rehearse) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    print_page(report_page(assemble_report(rehearse(**PAIR)), bounds=True), console)
    lines = console.export_text().splitlines()
    assert any(line.startswith("ctx=2K") and "66.5 [66.5, 66.5]" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_every_shipped_layout_draws_a_run_that_measured_nothing(rehearse: Rehearse) -> None:
    found = rehearse(arms=[PLAIN, EAGLE], rates={"plain": {LONG: 12.0}, "plain-eagle": {}})
    for name in shipped_layouts():
        assert told(found, layout=load_layout(name)).startswith("# ")


def test_an_unknown_layout_names_those_there_are() -> None:
    assert "qwen3-coder" in shipped_layouts()
    with pytest.raises(AdmissionError) as caught:
        load_layout("nothing-like-it")
    assert caught.value.hint is not None
    assert "qwen3-coder" in caught.value.hint


def test_answers_are_told_by_stratum_and_against_the_baseline(rehearse: Rehearse) -> None:
    rates = {"plain": {LONG: 60.0}, "plain-eagle": {LONG: 60.0}}
    results = rehearse(arms=[PLAIN, EAGLE], rates=rates, maths={"plain": 37, "plain-eagle": 35})
    assert assemble_report(results).overall[0].cells == 1, "only cells of speed are averaged"
    out = " ".join(told(results).split("## Math")[1].split())
    assert "| plain | 37/50 = 74 % [60, 84] |" in out
    assert "| plain-eagle | 35/50 = 70 % [56, 81] |" in out
    assert "| no evidence -4.0 points [" in out
    assert "sparkdash-math-scorer/v2" in out
    (plain, _) = assemble_report(results).scores
    assert sum(one.n for one in plain.strata.values()) == 50
    assert plain.verdict is None


def test_a_sweep_recommends_a_value_for_each_class_of_text(rehearse: Rehearse) -> None:
    """The known best for each class, with its evidence; the baseline stays where nothing is shown to be faster."""
    code, prose, chat = (key(512, 256, text=text) for text in ("code", "prose", "chat"))
    rates = {0: (40.0, 40.0, 40.0), 1: (60.0, 50.0, 39.9), 2: (70.0, 48.0, 40.1), 3: (66.0, 30.0, 39.0)}
    found = assemble_report(
        rehearse(
            arms=[Arm(name=f"k={k}", profile=f"sweep/{k}", parameters={"k": str(k)}, swept="coder") for k in rates],
            rates={f"k={k}": dict(zip((code, prose, chat), values, strict=True)) for k, values in rates.items()},
            drafts={f"k={k}": (80, 40, 10)[:k] for k in rates},
            wobble=0.004,
        )
    )
    told_of = {one.key.text: one for one in found.advice}
    assert {text: one.arm for text, one in told_of.items()} == {"code": "k=2", "prose": "k=1", "chat": "k=0"}
    assert told_of["code"].figure.verdict.claim is Conclusion.FASTER
    assert told_of["code"].acceptance_length == pytest.approx(2.2)
    assert told_of["code"].runner_up is not None
    assert told_of["code"].runner_up.arm == "k=3"
    out = render_markdown(report_page(found))
    assert "## Recommended" in out
    assert "nothing is shown to be faster" in out
    assert "sparkdash ab coder --sweep k=0,1,2,3 \\\n  --suite seeds" in out
    plain = assemble_report(rehearse(arms=[PLAIN, EAGLE], rates={"plain": GRID, "plain-eagle": faster(1.1)}))
    assert plain.advice == ()


def test_classes_of_text_have_a_table_of_their_own(rehearse: Rehearse) -> None:
    mine = key(0, 64, text="captured")
    out = told(rehearse(arms=[PLAIN], rates={"plain": {mine: 50.0}}))
    (row,) = (line for line in out.splitlines() if line.startswith("| captured"))
    assert [cell.strip() for cell in row.strip("|").split("|")][:3] == ["captured", "ctx=0", "64"]
    assert "tok/s (decode)" in out
    pair = told(rehearse(arms=[PLAIN, EAGLE], rates={"plain": {mine: 50.0}, "plain-eagle": {mine: 60.0}}, wobble=0.001))
    assert "faster" in pair
    assert "All 1 cells" not in pair


def test_prefix_cells_are_named_and_no_empty_table_of_verdicts_is_shown(rehearse: Rehearse) -> None:
    """Two contexts looked alike, one without counts was passed over, and the verdicts were a head without a row."""
    small, large = (key(context, 32, warm=True, kind=Kind.PREFIX) for context in (2048, 8192))
    results = rehearse(arms=[PLAIN, EAGLE], rates={arm: {small: 60.0, large: 60.0} for arm in ("plain", "plain-eagle")})
    counted = tuple(
        one.replace(prefix_hits=97, prefix_queries=100) if one.key == small else one for one in results.cells
    )
    page = told(results.model_copy(update={"cells": counted}))
    assert page.count("97% delta hit rate on repeated system prompt (ctx=2K).") == 2
    assert page.count("(ctx=8K). No finished cell has counts of hits.") == 2
    assert "No cell of this suite measures speed" in page
    assert "Verdict |" not in page


A, B, C = (Arm(name=name, profile=name) for name in "ABC")
THREE = [key(0, 150), key(512, 150), key(2048, 150)]


def figures(*values: float) -> dict[Any, float]:
    return dict(zip(THREE, values, strict=False))


@pytest.mark.parametrize(("mine", "given", "sentence"), [
    ((100.0, 100.0, 100.0), {}, "B is twice as fast in all 3 cells. Keep it."),
    ((25.0, 25.0), {}, "B is half as fast in all 3 cells. Keep A."),
    ((56.5, 56.5, 56.5), {}, "B is 13 % faster in all 3 cells. Keep it."),
    ((56.5, 50.0, 50.0), {}, "B is faster in 1 of 3 cells and slower in none. Keep it."),
    ((56.5, 40.0, 50.0), {}, "B is faster in 1 and slower in 1 of 3 cells. Choose by the cells that you use."),
    ((50.0, 50.0, 50.0), {}, "B is as fast as A in all 3 cells, as far as this can tell. Keep either."),
    ((56.5, 56.5, 56.5), {"mode": Mode.SCREEN}, "B looks 13 % faster, which one launch of each cannot show. Measure with `--mode standard`."),
    ((56.5, 56.5, 56.5), {"reps": 2}, "B looks 13 % faster, which 2 common prompts cannot show. Take a larger suite, such as `--suite seeds`."),
    ((56.5, 56.5, 56.5), {"maths": {"A": 48, "B": 3}}, "B is 13 % faster in all 3 cells, but fewer of its answers are right. Keep A."),
    ((56.5, 56.5, 56.5), {"provenance": {"A": {"thinking": True}, "B": {"thinking": False}}}, "B and A cannot be compared. The thinking flag differs: off in B, on in A."),
    ((), {}, "No cell of both B and A was measured yet, so nothing can be said."),
])  # fmt: skip
def test_a_pair_in_one_sentence(
    rehearse: Rehearse, mine: tuple[float, ...], given: dict[str, Any], sentence: str
) -> None:
    base = figures(*(50.0 for _ in mine or THREE))
    found = assemble_report(rehearse(arms=[A, B], rates={"A": base, "B": figures(*mine)}, wobble=0.001, **given))
    wanted = sentence.replace("all 3 cells", {2: "both cells"}.get(len(mine), "all 3 cells"))
    assert conclusion(found, BenchMetric.DECODE) == wanted
    page = render_markdown(report_page(found)).strip().splitlines()
    assert page[0] == "# B against A: seeds on rehearsal"
    assert (page[2], page[-1]) == (wanted, wanted)


def test_of_several_arms_the_one_that_gains_most(rehearse: Rehearse) -> None:
    told = {"A": figures(50.0, 50.0), "B": figures(60.0, 60.0), "C": figures(55.0, 55.0)}
    found = assemble_report(rehearse(arms=[A, B, C], rates=told, wobble=0.001))
    assert conclusion(found, BenchMetric.DECODE) == "B gains most over A: it is 20 % faster over all cells. Keep it."
    alike = assemble_report(rehearse(arms=[A, B, C], rates={name: figures(50.0, 50.0) for name in "ABC"}, wobble=0.001))
    assert (
        conclusion(alike, BenchMetric.DECODE)
        == "None of the 2 others is shown to be faster than A over all cells. Keep A."
    )


@pytest.mark.parametrize(("second", "sentence"), [
    (100.0, "B is twice as fast in both judged cells. Keep it."),
    (50.0, "B is faster in 1 of 2 judged cells and slower in none. Keep it."),
])  # fmt: skip
def test_cells_that_were_not_measured_are_not_counted(rehearse: Rehearse, second: float, sentence: str) -> None:
    """The mean over all cells counts those too that allow no claim, and stands beside this sentence."""
    told = {"A": figures(50.0, 50.0, 50.0), "B": figures(100.0, second)}
    found = assemble_report(rehearse(arms=[A, B], rates=told, wobble=0.001))
    assert conclusion(found, BenchMetric.DECODE) == sentence
