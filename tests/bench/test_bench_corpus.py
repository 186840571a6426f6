"""Corpora: prompts cut from real prose or code, to exact lengths, and a run that names its text."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path

import pytest

from sparkdash.bench import run_folder
from sparkdash.bench.plan import prompts, run_plan, suites, texts
from sparkdash.bench.plan.prompts import PromptIndex
from sparkdash.bench.plan.suites import CellGroup, Suite
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.comparability import flags_between_runs
from sparkdash.bench.report.formats import markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Kind, Mode, Run
from sparkdash.cli.bench import measure
from sparkdash.errors import AdmissionError
from sparkdash.sim.speed import tokenize

ARMS = (Arm(name="A", profile="a"), Arm(name="B", profile="b"))
SUITE = Suite(suite="tiny", version="1", about="", cells=(CellGroup(context=(0, 256), output=(24,)),))
SHA256 = {
    "prose": "d62b5fdfbaa626b87497b4e6704656df49be24bc89f886b7b5e91c7c97db757f",
    "code": "2505d7f0b0b708b926599ab1e01bbb058966cb21dd698df6b03a9a44ab130f31",
}


async def tokens(_kind: str, content: str) -> int:
    return len(tokenize(f"<|user|>\n{content}<|end|>\n<|assistant|>\n"))


def new_run(suite: Suite) -> Run:
    return run_plan.new_run(suite, ARMS, Mode.SCREEN)


@pytest.mark.parametrize("name", ["prose", "code"])
def test_a_shipped_corpus_is_the_text_that_its_readme_names(name: str) -> None:
    found = texts.load_corpus(name)
    assert found.told.sha256 == SHA256[name]
    assert SHA256[name] in (texts.CORPORA / "README.md").read_text("utf-8")
    assert hashlib.sha256((texts.CORPORA / f"{name}.txt.gz").read_bytes()).hexdigest() != SHA256[name]
    assert sum(file.stat().st_size for file in texts.CORPORA.glob("*.gz")) < 300_000


@pytest.mark.parametrize("name", ["prose", "code"])
@pytest.mark.parametrize("context", [128, 2048, 16384])
async def test_a_prompt_from_a_corpus_has_exactly_the_tokens_that_were_meant(name: str, context: int) -> None:
    corpus = texts.load_corpus(name)
    key = CellKey(suite="s", context=context, output=32)
    first, again, other = [
        await prompts.build_prompt(1, key, PromptIndex(rep), tokens, corpus=corpus) for rep in (0, 0, 1)
    ]
    assert first.tokens == context == await tokens("", str(first.content))
    assert first == again
    assert first.content != other.content
    assert first.id != other.id
    body = str(first.content).split("\n", 1)[1].rsplit("\n\n", 1)[0][: 3 * context // 2]
    whole = "".join(corpus.pieces)
    assert body[:200].strip() in whole


async def test_a_prompt_without_context_begins_a_passage_of_the_corpus() -> None:
    corpus = texts.load_corpus("prose")
    prompt = await prompts.build_prompt(1, CellKey(suite="s", context=0, output=8), PromptIndex(0), tokens, "", corpus)
    opening = str(prompt.content).split("\n\n", 1)[1]
    assert opening in "".join(corpus.pieces)


async def test_the_same_cell_has_another_prompt_id_with_another_text() -> None:
    key = CellKey(suite="s", context=256, output=8)
    ids = {
        (await prompts.build_prompt(1, key, PromptIndex(0), tokens, "", corpus)).id
        for corpus in (None, texts.load_corpus("prose"), texts.load_corpus("code"))
    }
    assert len(ids) == 3


def test_a_passage_goes_on_at_the_beginning_where_the_text_ends(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("\n\n".join(" ".join(f"w{part}.{n}" for n in range(100)) for part in range(6)))
    corpus = texts.load_corpus(str(file))
    assert len(corpus.starts) == 6
    words = [piece.strip() for piece in islice(corpus.passage("any"), 1500) if piece.strip()]
    assert words[0].endswith(".0")
    assert set(words) == {piece.strip() for piece in corpus.pieces}


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "corpus_not_found"), (b"too short", "corpus_unusable"), (b"\xff\xfe", "corpus_unusable")],
)
def test_a_file_that_is_no_corpus_is_refused(tmp_path: Path, content: bytes | None, code: str) -> None:
    file = tmp_path / "mine.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(AdmissionError) as refused:
        texts.load_corpus(str(file))
    assert refused.value.code == code


def test_a_suite_whose_cells_have_their_own_text_takes_no_corpus() -> None:
    own = Suite(suite="own", version="1", about="", cells=(CellGroup(output=(8,), text=("code", "json")),))
    with pytest.raises(AdmissionError, match="texts of its own"):
        own.with_corpus("prose")
    math = Suite(suite="own", version="1", about="", cells=(CellGroup(output=(8,), kind=Kind.MATH),))
    with pytest.raises(AdmissionError, match="texts of its own"):
        math.with_corpus("prose")


def test_the_hash_of_a_suite_covers_its_corpus_and_is_the_old_one_without() -> None:
    hashes = {SUITE.hash, SUITE.with_corpus("prose").hash, SUITE.with_corpus("code").hash}
    assert len(hashes) == 3
    assert suites.load_suite("seeds").hash.startswith("5077e2616854")


def test_a_report_names_the_corpus_and_the_command_that_repeats_it() -> None:
    run = new_run(SUITE.with_corpus("prose"))
    page = markdown.render_markdown(report_page(assemble_report(Results(run=run))))
    assert "Corpus: prose (d62b5fdfbaa6)" in page
    assert "--suite tiny --corpus prose" in page
    assert run.suite_name.endswith("corpus prose (d62b5fdfbaa6)")


def test_runs_of_different_corpora_are_not_compared() -> None:
    ours, theirs = (assemble_report(Results(run=new_run(suite))) for suite in (SUITE.with_corpus("prose"), SUITE))
    flags = [flag for flag in flags_between_runs(ours, theirs) if flag.refuses]
    assert any("corpus prose (d62b5fdfbaa6) and generated text" in flag.text for flag in flags)


def test_a_run_whose_corpus_was_edited_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("word " * 600)
    suite_file = tmp_path / "tiny.yaml"
    suite_file.write_text("suite: tiny\nversion: 1\nabout: mine\ncells:\n  - {output: 24}\n")
    suite = suites.load_suite(str(suite_file)).with_corpus(str(file))
    run = run_plan.new_run(suite, ARMS, Mode.SCREEN, suite_file=str(suite_file))
    monkeypatch.setenv("SPARKDASH_BENCH_DIR", str(tmp_path / "bench"))
    run_folder.create_run_folder(run)
    file.write_text("other " * 600)
    with pytest.raises(AdmissionError, match="has changed since"):
        measure.resume_run(run.id, share=False, ask=False, as_json=False)
