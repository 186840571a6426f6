"""Prompts: exact lengths, equal in all arms, and nothing that a cache could know."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from simulated import serving
from typer.testing import CliRunner

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.measure.arm_launcher import UrlLauncher
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.runner import Runner
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.plan import prompts, run_plan, suites, texts
from sparkdash.bench.plan.prompts import PromptIndex, chat_prompt
from sparkdash.bench.plan.run_plan import new_run
from sparkdash.bench.plan.suites import CellGroup, Suite
from sparkdash.bench.report import formats
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Kind, Mode, Run
from sparkdash.cli.bench import measure
from sparkdash.cli.main import app
from sparkdash.domain.profile import EngineKind, Profile, SimSpec, SimSpeed
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.sim import prompt as prompt_module
from sparkdash.sim.speed import tokenize

ARMS = (Arm(name="A", profile="a"), Arm(name="B", profile="b"))
SUITE = Suite(suite="tiny", version="1", about="", cells=(CellGroup(context=(0, 256), output=(24,)),))
SHA256 = {
    "prose": "d62b5fdfbaa626b87497b4e6704656df49be24bc89f886b7b5e91c7c97db757f",
    "code": "2505d7f0b0b708b926599ab1e01bbb058966cb21dd698df6b03a9a44ab130f31",
}


async def tokens(_kind: str, content: str) -> int:
    return len(tokenize(f"<|user|>\n{content}<|end|>\n<|assistant|>\n"))


def corpus_run(suite: Suite) -> Run:
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
    run = corpus_run(SUITE.with_corpus("prose"))
    page = formats.render_markdown(report_page(assemble_report(Results(run=run))))
    assert "Corpus: prose (d62b5fdfbaa6)" in page
    assert "--suite tiny --corpus prose" in page
    assert run.corpus is not None
    assert run.corpus.text == "prose (d62b5fdfbaa6)"


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


MARK = "the client's secret garden"


def line(text: str, path: str = suites.ROUTE, **more: Any) -> str:
    body = {"model": "a", "max_tokens": 9, "messages": [{"role": "user", "content": text}], **more}
    return json.dumps({"at": 1.0, "method": "POST", "path": path, "body": body})


def chats_of(lines: Sequence[str]) -> tuple[Sequence[suites.Chat], int]:
    """Chats of a capture file's lines, and the number of other lines."""
    requests, others = suites.select_requests(lines, 5)
    return suites.different_chats(body for _, body in requests), others


def test_the_last_different_chats_are_taken() -> None:
    """Without model, length and temperature; what is said again counts as the later one."""
    lines = [
        line("a"),
        line("b", tools=[{"type": "function"}]),
        line("a", model="x"),
        "torn",
        line("c", path="/v1/embeddings"),
    ]
    chats, others = chats_of([*lines, json.dumps({"path": suites.ROUTE, "body": None})])
    assert [chat["messages"][0]["content"] for chat in chats] == ["b", "a"]
    assert (sorted(chats[0]), others) == (["messages", "tools"], 3)
    assert len(suites.select_requests(lines, 1)[0]) == 1


def test_a_prompt_begins_with_a_mark_and_is_named_by_its_text() -> None:
    """Equal in all arms but for the mark; pictures stay, and the chats are not changed."""
    parts = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    chats = (
        {"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": "x"}]},
        {"messages": [{"content": parts}]},
    )
    one, other = chat_prompt(chats, PromptIndex(0), "A"), chat_prompt(chats, PromptIndex(2), "B")
    assert one.id == other.id
    assert one.content != other.content
    assert one.content["messages"][0]["content"].endswith("] hi")
    assert one.content["messages"][1] == chats[0]["messages"][1]
    assert chat_prompt(chats, PromptIndex(1), "A").content["messages"][0]["content"][1:] == parts
    assert chats[0]["messages"][0]["content"] == "hi"


def test_a_suite_is_made_read_and_refused_when_its_prompts_changed() -> None:
    runner = CliRunner()
    assert "nothing_captured" in str(
        getattr(runner.invoke(app, ["bench", "suites", "--captured", "mine"]).exception, "code", "")
    )
    (paths.state_dir() / "captured.jsonl").write_text(f"{line(MARK)}\n{line('b')}\n")
    assert runner.invoke(app, ["bench", "suites", "--captured", "mine", "--output", "32"]).exit_code == 0
    suite = suites.load_suite("mine")
    assert [chat["messages"][0]["content"] for chat in suite.chats] == [MARK, "b"]
    assert [(cell.key.output, cell.key.text, cell.reps) for cell in suite.cells and suite.planned(Mode.SCREEN)] == [
        (32, "captured", 2),
    ]
    place = paths.config_dir() / "suites" / "mine.prompts"
    assert place.stat().st_mode & 0o777 == 0o600
    (paths.state_dir() / "captured.jsonl").write_text(f"{line('b')}\n")
    assert runner.invoke(app, ["bench", "suites", "--captured", "mine", "--output", "32"]).exit_code == 0
    assert suites.load_suite("mine").hash != suite.hash
    place.write_text("{}\n")
    with pytest.raises(ProfileError, match="is not what this suite was made of"):
        suites.load_suite("mine")


@pytest.mark.parametrize(
    ("name", "words"),
    [("A b", "not a valid name"), ("../x", "not a valid name"), ("seeds", "already"), ("own", "already")],
)
def test_a_captured_suite_takes_the_place_of_no_other(name: str, words: str) -> None:
    folder = paths.config_dir() / "suites"
    folder.mkdir()
    (folder / "own.yaml").write_text("suite: own\n")
    (paths.state_dir() / "captured.jsonl").write_text(f"{line('b')}\n")
    error = CliRunner().invoke(app, ["bench", "suites", "--captured", name]).exception
    assert isinstance(error, AdmissionError)
    assert words in error.message
    assert [file.name for file in folder.iterdir()] == ["own.yaml"]


def test_cells_of_captured_requests_want_prompts(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("suite: x\nversion: 1\nabout: x\ncells: [{output: 32, text: captured}]\n")
    with pytest.raises(ProfileError, match="sparkdash bench suites --captured NAME"):
        suites.load_suite(str(file))


async def test_a_run_keeps_digests_and_never_words(tmp_path: Path) -> None:
    chats, _ = chats_of([line(MARK), line("b")])
    cells = (suites.CellGroup(output=(20,), text=(suites.TEXT,), reps=2),)
    suite = suites.Suite(suite="mine", version="1", about="", cells=cells, prompts="x", prompts_sha256="y")
    speed = SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=4000)
    profile = Profile(name="sim", engine=EngineKind.SIM, context=4096, sim=SimSpec(speeds=(speed,), time_scale=50))
    async with serving(profile) as (_, url), BenchClient(url) as wire:
        run = new_run(suite, (Arm(name="A", profile=url),), Mode.SCREEN, target="url")
        place = run_folder.create_run_folder(run, tmp_path)
        heard: list[str] = []
        chat = wire.chats

        async def listening(bodies: Sequence[Mapping[str, Any]]) -> list[StreamedAnswer]:
            heard.extend(json.dumps(body) for body in bodies)
            return await chat(bodies)

        wire.chats = listening  # type: ignore[method-assign]
        results = await Runner(place, UrlLauncher(wire), lambda _: None, lag_limit_ms=1e9, chats=chats).run()
    assert results.gaps() == ()
    assert any(MARK in body for body in heard)
    assert {one.prompt_id.partition(" ")[0] for one in results.samples} == {"captured"}
    assert MARK not in (place / "records.jsonl").read_text() + (place / "run.json").read_text()
    assert MARK not in assemble_report(results).model_dump_json()


async def test_tools_that_all_chats_share_make_no_answer_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many templates write the tools before the first message; an agent sends the same ones with every request."""

    def tools_first(tools: Any, turns: Sequence[Mapping[str, Any]]) -> str:
        head = "You may call one or more functions to assist with the user query. " * 3
        said = "".join(f"<|user|>{turn['content']}<|end|>" for turn in turns)
        return f"{head}{json.dumps(tools)}{said}" if tools else said

    monkeypatch.setattr(prompt_module, "_template", tools_first)
    tools = [
        {"type": "function", "function": {"name": name, "description": "Read one file. " * 40, "parameters": {}}}
        for name in ("read", "list")
    ]
    chats, _ = chats_of([line(f"case {number}", tools=tools) for number in range(4)])
    cells = (suites.CellGroup(output=(20,), text=(suites.TEXT,), reps=4),)
    suite = suites.Suite(suite="mine", version="1", about="", cells=cells, prompts="x", prompts_sha256="y")
    profile = Profile(name="sim", engine=EngineKind.SIM, context=4096, sim=SimSpec(time_scale=50))
    async with serving(profile) as (_, url), BenchClient(url) as wire:
        run = new_run(suite, (Arm(name="A", profile=url),), Mode.SCREEN, target="url")
        place = run_folder.create_run_folder(run, tmp_path)
        results = await Runner(place, UrlLauncher(wire), lambda _: None, lag_limit_ms=1e9, chats=chats).run()
    assert {one.void for one in results.samples} == {None}
    assert results.gaps() == ()
    assert len({one.prompt_id for one in results.samples}) == 4


GOLDEN = {"prose": "2296df97fbdc", "code": "e5081cb5ae52", "json": "1c6db707e3fd", "chat": "7370c27efb83"}
"""SHA-256 of 2000 words of each class, its beginning. When it changes, prose.VERSION must."""
COLD = CellKey(suite="s", context=2048, output=32)


async def words(_kind: str, content: str) -> int:
    """Another tokenizer: one token a word, and a template of seven."""
    return len(content.split()) + 7


async def pairs(_kind: str, content: str) -> int:
    """A poor tokenizer, which makes many tokens of a word: two characters each, and a digit or mark by itself."""
    return 9 + len(re.findall(r"\s?[a-z]{1,2}|[^a-z]", content))


@pytest.mark.parametrize("context", [128, 2048, 16384])
@pytest.mark.parametrize("text", ["prose", "code", "json", "chat"])
@pytest.mark.parametrize("count", [tokens, words, pairs])
async def test_a_prompt_has_exactly_the_tokens_that_were_meant(context: int, text: str, count: prompts.Count) -> None:
    key = CellKey(suite="s", context=context, output=32, text=text)
    for rep in range(2):
        prompt = await prompts.build_prompt(1, key, PromptIndex(rep), count)
        assert prompt.tokens == context == await count(text, prompt.content)


async def test_equal_questions_give_equal_prompts_and_others_differ_from_the_first_token_on() -> None:
    place = PromptIndex(3, stream=1)
    first, again = [await prompts.build_prompt(1, COLD, place, tokens) for _ in range(2)]
    assert first == again
    others = [
        await prompts.build_prompt(2, COLD, place, tokens),
        await prompts.build_prompt(1, COLD, PromptIndex(4, stream=1), tokens),
        await prompts.build_prompt(1, COLD, PromptIndex(3), tokens),
        await prompts.build_prompt(1, COLD.model_copy(update={"output": 33}), place, tokens),
        await prompts.build_prompt(1, COLD.model_copy(update={"context": 2049}), place, tokens),
    ]
    heads = {prompt.content[:13] for prompt in (first, *others)}
    assert len(heads) == 6
    assert len({prompt.id for prompt in (first, *others)}) == 6


async def test_a_second_try_is_the_same_text_under_another_head() -> None:
    first, second = [await prompts.build_prompt(1, COLD, PromptIndex(0, attempt=attempt), tokens) for attempt in (0, 1)]
    assert first.id == second.id
    assert first.content[:13] != second.content[:13]
    assert first.content[20:400] == second.content[20:400]


async def test_a_suites_name_changes_no_prompt() -> None:
    mine = COLD.model_copy(update={"suite": "mine"})
    assert (await prompts.build_prompt(1, mine, PromptIndex(0), tokens)) == (
        await prompts.build_prompt(1, COLD, PromptIndex(0), tokens)
    )


async def test_questions_of_a_prefix_cell_share_all_before_them() -> None:
    key = COLD.model_copy(update={"kind": Kind.PREFIX, "warm": True})
    first, second = [(await prompts.build_prompt(1, key, PromptIndex(rep), tokens)).content for rep in (0, 1)]
    assert first != second
    shared = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert shared > 0.9 * len(first)


async def test_a_cell_takes_all_classes_in_turn() -> None:
    assert [prompts.text_class(COLD, rep) for rep in range(5)] == ["prose", "code", "json", "chat", "prose"]
    assert prompts.text_class(COLD.model_copy(update={"text": "json"}), 0) == "json"


def test_the_text_is_the_same_on_every_machine() -> None:
    """A golden beginning of each class: prompts of other machines and versions must be these."""
    found = {kind: "".join(islice(texts.text_pieces(kind, "golden"), 2000)) for kind in prompts.CLASSES}
    assert found["prose"].startswith("Of 761 islands only 17 were repaired between")
    assert {kind: hashlib.sha256(text.encode()).hexdigest()[:12] for kind, text in found.items()} == GOLDEN


@pytest.mark.parametrize("kind", ["prose", "code", "json", "chat"])
def test_text_does_not_repeat_itself(kind: str) -> None:
    """A drafter that guesses by what came before finds little: runs of 8 words that occur again are rare."""
    source = texts.text_pieces(kind, "variety")
    text = [next(source).strip() for _ in range(4000)]
    runs = [tuple(text[at : at + 8]) for at in range(len(text) - 8)]
    assert len(set(runs)) > 0.98 * len(runs)
