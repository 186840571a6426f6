"""The owner's own requests as a suite: local, hashed, and no word of them in a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.measure.arm_launcher import UrlLauncher
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.runner import Runner
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.plan import suites
from sparkdash.bench.plan.prompts import PromptIndex, chat_prompt
from sparkdash.bench.plan.run_plan import RunTarget, new_run
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.run import Arm, Mode
from sparkdash.cli.main import app
from sparkdash.domain.profile import EngineKind, Profile, SimSpec, SimSpeed
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.sim import prompt as prompt_module
from sparkdash.sim.process import serving

MARK = "the client's secret garden"


def line(text: str, path: str = suites.ROUTE, **more: Any) -> str:
    """As the gateway keeps it."""
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
    """Its hash tells the prompts; their file is the owner's alone."""
    runner = CliRunner()
    assert "nothing_captured" in str(getattr(runner.invoke(app, ["bench", "captured", "mine"]).exception, "code", ""))
    (paths.state_dir() / "captured.jsonl").write_text(f"{line(MARK)}\n{line('b')}\n")
    assert runner.invoke(app, ["bench", "captured", "mine", "--output", "32"]).exit_code == 0
    suite = suites.load_suite("mine")
    assert [chat["messages"][0]["content"] for chat in suite.chats] == [MARK, "b"]
    assert [(cell.key.output, cell.key.text, cell.reps) for cell in suite.cells and suite.planned(Mode.SCREEN)] == [
        (32, "captured", 2),
    ]
    place = paths.config_dir() / "suites" / "mine.prompts"
    assert place.stat().st_mode & 0o777 == 0o600
    (paths.state_dir() / "captured.jsonl").write_text(f"{line('b')}\n")
    assert runner.invoke(app, ["bench", "captured", "mine", "--output", "32"]).exit_code == 0
    assert suites.load_suite("mine").hash != suite.hash
    place.write_text("{}\n")
    with pytest.raises(ProfileError, match="is not what this suite was made of"):
        suites.load_suite("mine")


@pytest.mark.parametrize(
    ("name", "words"),
    [("A b", "not a valid name"), ("../x", "not a valid name"), ("seeds", "already"), ("own", "already")],
)
def test_a_captured_suite_takes_the_place_of_no_other(name: str, words: str) -> None:
    """Neither of one that comes with sparkdash, nor of one that the owner wrote."""
    folder = paths.config_dir() / "suites"
    folder.mkdir()
    (folder / "own.yaml").write_text("suite: own\n")
    (paths.state_dir() / "captured.jsonl").write_text(f"{line('b')}\n")
    error = CliRunner().invoke(app, ["bench", "captured", name]).exception
    assert isinstance(error, AdmissionError)
    assert words in error.message
    assert [file.name for file in folder.iterdir()] == ["own.yaml"]


def test_cells_of_captured_requests_want_prompts(tmp_path: Path) -> None:
    """Told where the suite is read."""
    file = tmp_path / "x.yaml"
    file.write_text("suite: x\nversion: 1\nabout: x\ncells: [{output: 32, text: captured}]\n")
    with pytest.raises(ProfileError, match="sparkdash bench captured NAME"):
        suites.load_suite(str(file))


async def test_a_run_keeps_digests_and_never_words(tmp_path: Path) -> None:
    """Neither its records nor its report has the text; the engine got all of it."""
    chats, _ = chats_of([line(MARK), line("b")])
    cells = (suites.CellGroup(output=(20,), text=(suites.TEXT,), reps=2),)
    suite = suites.Suite(suite="mine", version="1", about="", cells=cells, prompts="x", prompts_sha256="y")
    speed = SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=4000)
    profile = Profile(name="sim", engine=EngineKind.SIM, context=4096, sim=SimSpec(speeds=(speed,), time_scale=50))
    async with serving(profile) as (_, url), BenchClient(url) as wire:
        run = new_run(suite, (Arm(name="A", profile=url),), Mode.SCREEN, where=RunTarget(target="url"))
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
        run = new_run(suite, (Arm(name="A", profile=url),), Mode.SCREEN, where=RunTarget(target="url"))
        place = run_folder.create_run_folder(run, tmp_path)
        results = await Runner(place, UrlLauncher(wire), lambda _: None, lag_limit_ms=1e9, chats=chats).run()
    assert {one.void for one in results.samples} == {None}
    assert results.gaps() == ()
    assert len({one.prompt_id for one in results.samples}) == 4
