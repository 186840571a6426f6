"""Prompts: exact lengths, equal in all arms, and nothing that a cache could know."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from measured_server import OwnServer
from simulated import serving
from typer.testing import CliRunner

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.runner import Runner
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.plan import prompts, suites, texts
from sparkdash.bench.plan.prompts import PromptIndex, chat_prompt
from sparkdash.bench.plan.run_plan import new_run
from sparkdash.bench.plan.suites import CellGroup, Suite
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Kind, Mode
from sparkdash.cli.main import app
from sparkdash.domain.profile import EngineKind, Profile, SimSpec
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.sim import prompt as prompt_module
from sparkdash.sim.speed import tokenize


async def tokens(_kind: str, content: str) -> int:
    return len(tokenize(f"<|user|>\n{content}<|end|>\n<|assistant|>\n"))


def test_the_hash_of_a_suite_is_the_old_one() -> None:
    assert suites.load_suite("seeds").hash.startswith("5077e2616854")


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
    lines = [line("a"), line("b", tools=[{"type": "function"}]), line("a", model="x"), "torn"]
    lines += [line("c", path="/v1/embeddings"), json.dumps({"path": suites.ROUTE, "body": None})]
    chats, others = chats_of(lines)
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
    error = runner.invoke(app, ["bench", "suites", "--captured", "mine"]).exception
    assert isinstance(error, AdmissionError)
    assert error.code == "nothing_captured"
    (paths.state_dir() / "captured.jsonl").write_text(f"{line(MARK)}\n{line('b')}\n")
    assert runner.invoke(app, ["bench", "suites", "--captured", "mine", "--output", "32"]).exit_code == 0
    suite = suites.load_suite("mine")
    assert [chat["messages"][0]["content"] for chat in suite.chats] == [MARK, "b"]
    assert [(cell.key.output, cell.key.text, cell.reps) for cell in suite.cells and suite.planned(Mode.SCREEN)] == [
        (32, "captured", 2)
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


SIM = Profile(name="sim", engine=EngineKind.SIM, context=4096, sim=SimSpec(time_scale=50))


async def measured(wire: BenchClient, url: str, chats: Sequence[suites.Chat], folder: Path) -> tuple[Path, Results]:
    """A run of one cell with these chats at that server: its folder and its results."""
    cells = (CellGroup(output=(20,), text=(suites.TEXT,), reps=len(chats)),)
    suite = Suite(suite="mine", version="1", about="", cells=cells, prompts="x", prompts_sha256="y")
    place = run_folder.create_run_folder(new_run(suite, (Arm(name="A", profile=url),), Mode.SCREEN), folder)
    return place, await Runner(place, OwnServer(wire), lambda _: None, lag_limit_ms=1e9, chats=chats).run()


async def test_a_run_keeps_digests_and_never_words(tmp_path: Path) -> None:
    chats, _ = chats_of([line(MARK), line("b")])
    async with serving(SIM) as (_, url), BenchClient(url) as wire:
        heard: list[str] = []
        chat = wire.chats

        async def listening(bodies: Sequence[Mapping[str, Any]]) -> list[StreamedAnswer]:
            heard.extend(json.dumps(body) for body in bodies)
            return await chat(bodies)

        wire.chats = listening  # type: ignore[method-assign]
        place, results = await measured(wire, url, chats, tmp_path)
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
    async with serving(SIM) as (_, url), BenchClient(url) as wire:
        _, results = await measured(wire, url, chats, tmp_path)
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
    keys = (COLD, COLD, COLD.model_copy(update={"suite": "of another name"}))
    first, again, renamed = [await prompts.build_prompt(1, key, place, tokens) for key in keys]
    assert first == again == renamed
    assert [prompts.text_class(COLD, rep) for rep in range(5)] == ["prose", "code", "json", "chat", "prose"]
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


async def test_questions_of_a_prefix_cell_share_all_before_them() -> None:
    key = COLD.model_copy(update={"kind": Kind.PREFIX, "warm": True})
    first, second = [(await prompts.build_prompt(1, key, PromptIndex(rep), tokens)).content for rep in (0, 1)]
    assert first != second
    shared = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert shared > 0.9 * len(first)


def test_the_text_is_the_same_on_every_machine() -> None:
    """A golden beginning of each class: prompts of other machines and versions must be these."""
    found = {kind: "".join(islice(texts.text_pieces(kind, "golden"), 2000)) for kind in prompts.CLASSES}
    assert found["prose"].startswith("Of 761 islands only 17 were repaired between")
    assert {kind: hashlib.sha256(text.encode()).hexdigest()[:12] for kind, text in found.items()} == GOLDEN
