"""Actions from a screen: a run, a pin, an edit, a dry run, a setting. Each is seen to reach the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkdash.api.answers import BenchPlan, PlannedArm, Setting, SettingList, SuiteLine
from sparkdash.client.address import Address
from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.domain.node import Diagnosis, Finding, Status
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.tui.lines.dialog_texts import command_lines
from sparkdash.tui.local_commands import LocalCommands
from sparkdash.tui.text import plain_text
from sparkdash.units import GIB

ON_THE_BOX = Address("http://localhost", Path("/run/sparkdash.sock"))
FINDING = {"level": "error", "line": 7, "key": "engine", "message": "must be one of vllm, not 'vlm'", "hint": "'vllm'?"}


class PretendCommands:
    """The box's own commands: documents as the real ones print them."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    async def check(self, file: Path) -> dict[str, Any]:
        self.checked.append(text := file.read_text("utf-8"))  # noqa: ASYNC240 - a small file
        return {"findings": [FINDING | {"file": str(file)}] if "vlm" in text else []}

    async def dry_run(self, profile: str) -> dict[str, Any]:
        argv = ["podman", "run", "-d", "--name", f"sparkdash-{profile}", "--network", "host"]
        return {"profile": profile, "argv": argv, "nodes": []}

    async def pull_weights(self, profile: str) -> AsyncIterator[dict[str, Any]]:
        yield {"weights": [profile], "came_bytes": GIB, "total_bytes": 4 * GIB, "bytes_per_s": None, "eta_s": 9.0}


async def test_a_run_of_the_marked_profiles_begins_after_its_plan_was_shown(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(120, 40)) as on:
        on.daemon.run_plan = BenchPlan(
            suite="smoke", about="A first look", mode="standard", cells=2, gaps=8, expected_s=7800.0, stops=(box.gpt,),
            arms=(PlannedArm(name=box.gpt, launch_s=220.0, decode_tok_s=57.0, source="seen here"), PlannedArm(name=box.coder)),
            order=(box.gpt, box.coder, box.coder, box.gpt),
            suites=(SuiteLine(name="smoke", about="A first look", cells=2), SuiteLine(name="seeds", about="All", cells=92)),
            note="Five prompts show a true +5 % in one of six cells.",
        )  # fmt: skip
        await on.press("A")
        for row in (
            "A gpt-oss-120b the baseline", "B qwen3-coder-30b-nvfp4", "▸ suite smoke A first look",
            "plan 4 launches, such as A B B A, 2 cells each, 8 to measure", "time about 2h10m from rates seen here",
            "stops gpt-oss-120b; what serves now comes back at the end",
            "note Five prompts show a true +5 % in one of six cells.",
        ):  # fmt: skip
            assert any(row in line for line in on.rows), (row, on.text)
        await on.press("j", "l")
        assert "careful" in on.text
        assert "the plan is made" in on.text
        await on.press("enter")
        assert ("begin", [box.gpt, box.coder], "smoke", "careful", None) not in on.daemon.asked, "its plan is not there"
        await on.until(lambda: "plan      4 launches" in on.text)
        await on.press("enter")
        assert on.daemon.asked[-1] == ("begin", [box.gpt, box.coder], "smoke", "careful", None)
        assert "The run begins" in on.text


async def test_a_plan_that_is_refused_says_why_and_begins_nothing(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(100, 30)) as on:
        on.daemon.refuses = ProfileError("The suite cannot be used: line 3.")
        await on.press("A", "enter")
        assert "The suite cannot be used: line 3." in on.text
        assert [order[0] for order in on.daemon.asked] == ["plan a run"]


async def test_a_profile_is_pinned_and_preloaded_with_one_key(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(120, 30)) as on:
        await on.press("2", "P")
        assert on.daemon.asked == [("setting", "policy", box.gpt, "pinned", "true")]
        assert "gpt-oss-120b is pinned" in on.text
        on.daemon.listed = SettingList(file="c", settings=(), pinned=(box.gpt,), preload=("a", box.gpt))
        await on.press("1", "2")
        assert any("gpt-oss-120b pinned preloaded" in row for row in on.rows), on.text
        await on.press("P", "L")
        assert on.daemon.asked[1:] == [("setting", "policy", box.gpt, "pinned", None), ("setting", "preload", '["a"]')]


async def test_an_edit_is_kept_only_when_it_is_valid(stage: Any, box: Any, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("engine: vllm\n", "utf-8")
    edits = ["engine: vlm\n", "engine: sglang\n"]

    async with stage(box.snapshot(), size=(100, 30)) as on:
        on.daemon.address = ON_THE_BOX
        on.daemon.files[box.gpt] = SimpleNamespace(source=f"{file}:1")
        on.app.orders.commands = commands = PretendCommands()
        monkeypatch.setattr(on.app, "edit_file", lambda draft, _line: draft.write_text(edits.pop(0), "utf-8"))
        await on.press("2", "e")
        await on.until(lambda: "the edit is not valid" in on.text)
        assert "✗ mine.yaml:7: engine: must be one of vllm, not 'vlm'" in on.text
        assert file.read_text("utf-8") == "engine: vllm\n"
        await on.press("enter")
        await on.until(lambda: ("reload",) in on.daemon.asked)
        assert file.read_text("utf-8") == "engine: sglang\n"
        assert commands.checked == ["engine: vlm\n", "engine: sglang\n"]


async def test_a_profile_of_the_demo_is_no_file_to_edit(stage: Any, box: Any) -> None:
    """The source of a demo's profile is the file that ships: a copy would land among the owner's own profiles."""
    world = box.snapshot()
    demo = world.daemon.model_copy(update={"simulated": True})
    async with stage(world.model_copy(update={"daemon": demo})) as on:
        on.daemon.address = ON_THE_BOX
        await on.press("2", "e")
        assert "gpt-oss-120b is simulated: there is nothing to edit." in on.text


async def test_a_dry_run_shows_the_command_and_a_pull_fetches_the_weights_too(stage: Any, box: Any) -> None:
    """On the daemon's own box; from another one the command line is named."""
    world = box.snapshot()
    with_weights = world.profiles[0].model_copy(update={"weights": (ModelRef(hf="org/m"),)})
    async with stage(world.model_copy(update={"profiles": (with_weights, *world.profiles[1:])})) as on:
        on.app.orders.commands = PretendCommands()
        await on.press("2", "d")
        assert "The command of a profile is made from the files of the daemon's box." in " ".join(on.rows)
        on.daemon.address = ON_THE_BOX
        await on.press("escape", "d")
        assert "podman run" in on.text
        assert "--name sparkdash-gpt-oss-120b" in on.text
        await on.press("escape", "p")
        assert on.daemon.asked == [("pull", box.gpt)]
        await on.until(lambda: "image and weights are there" in on.text)


async def test_the_commands_of_the_box_are_ones_that_sparkdash_has(tmp_path: Path) -> None:
    """As child processes: an option that is gone would be told in place of the document."""
    commands = LocalCommands(ON_THE_BOX)
    shown = [plain_text(line) for line in command_lines(await commands.dry_run("gpt-oss-20b"), 100)]
    assert shown[0].startswith("podman run"), shown
    (tmp_path / "mine.yaml").write_text("engine: vlm\n")
    assert (await commands.check(tmp_path / "mine.yaml"))["findings"]
    with pytest.raises(AdmissionError, match="nobody"):
        await anext(commands.pull_weights("nobody"))


async def test_a_pull_fetches_the_weights_alone_where_engines_are_plain_processes(stage: Any, box: Any) -> None:
    """The daemon would refuse to fetch an image, and the weights would never come."""
    world = box.snapshot()
    plain = world.profiles[0].model_copy(update={"weights": (ModelRef(hf="org/m"),)})
    daemon = world.daemon.model_copy(update={"runtime": "process"})
    async with stage(world.model_copy(update={"profiles": (plain, *world.profiles[1:]), "daemon": daemon})) as on:
        on.app.orders.commands = PretendCommands()
        on.daemon.address = ON_THE_BOX
        await on.press("2", "p")
        await on.until(lambda: "the weights are there" in on.text)
        assert ("pull", box.gpt) not in on.daemon.asked


async def test_settings_are_explained_and_a_refused_value_is_told(stage: Any, box: Any) -> None:
    """Enter changes one; the field stays with the reason until it is right."""
    rows = (
        Setting(name="reserve_gib", value="10", default="10", meaning="Memory that admission keeps free.", live=True),
        Setting(name="port", value="8484", default="8484", meaning="Port of the gateway.", waits="9000"),
        Setting(name="sets", value="pair", default="-", meaning="Sets.", editable=False),
    )
    async with stage(box.snapshot(), size=(130, 30)) as on:
        on.daemon.listed = SettingList(file="/c/config.toml", settings=rows)
        await on.press("comma")
        assert any("reserve_gib 10 10 ● now Memory that admission keeps free." in row for row in on.rows), on.text
        assert any("port 8484 8484 ! restart Port of the gateway." in row for row in on.rows)
        on.daemon.refuses = ProfileError("reserve_gib: must be at least 0.")
        await on.press("enter", "backspace", "backspace", "minus", "1", "enter")
        assert on.daemon.asked == [("setting", "reserve_gib", "-1")]
        assert "reserve_gib: must be at least 0." in " ".join(on.rows)
        on.daemon.refuses = None
        await on.press("backspace", "backspace", "1", "2", "enter")
        assert on.daemon.asked[-1] == ("setting", "reserve_gib", "12")
        assert "reserve_gib is 12: a change holds at once." in on.text
        await on.press("G", "enter")
        assert "sets is a table: e edits /c/config.toml" in on.text
        await on.press("escape")
        assert "▸" not in on.text
        assert "in flight" in on.text


async def test_the_box_page_lists_who_holds_the_memory(stage: Any, box: Any) -> None:
    held = (
        Holding(kind=Holder.ENGINE, name=box.gpt, bytes=78 * GIB, gpu_bytes=70 * GIB, pid=4711, user="me"),
        Holding(kind=Holder.PROGRAM, name="blen\x1b[2Jder", bytes=9 * GIB, pid=99, user="me", remedy="kill 99"),
    )
    async with stage(box.snapshot(), size=(120, 30)) as on:
        on.daemon.account = MemoryAccount(
            at=box.now, total=121 * GIB, available=30 * GIB, holdings=held, notes=("Some of it is counted twice.",)
        )
        await on.press("7")
        assert any("gpt-oss-120b engine 78 GiB 70 GiB - 4711 me" in row for row in on.rows), on.text
        await on.press("j")
        assert "→ kill 99" in on.text
        assert "121 GiB in all, 30 GiB available" in on.text
        assert "Some of it is counted twice." in on.text
        assert "\x1b" not in on.text
        assert ("memory",) in on.daemon.asked


async def test_the_box_page_examines_once_and_has_the_power_where_no_doctor_is(stage: Any, box: Any) -> None:
    """An examination takes seconds of the box: the page keeps it, `r` begins another."""
    async with stage(box.snapshot(), size=(100, 30)) as on:
        on.daemon.refuses = AdmissionError("The demo's box is simulated.", code="no_doctor")
        await on.press("7")
        assert "╭ power and clock" in on.text
        on.daemon.refuses = None
        on.daemon.diagnosis = Diagnosis(findings=(
            Finding(name="weights", status=Status.OK, evidence="41 % of the disk is free"),
            Finding(name="linger", status=Status.WARN, evidence="engines end", fix="loginctl enable-linger"),
        ))  # fmt: skip
        on.daemon.asked.clear()
        await on.press("1", "7", "1", "7")
        told = [row for row in on.rows if row.startswith(("warn", "ok", "→"))]
        assert told == ["warn linger engines end", "→ loginctl enable-linger", "ok weights 41 % of the disk is free"]
        assert on.daemon.asked.count(("doctor",)) == 1
        assert "power and clock" not in on.text


async def test_memory_by_owner_of_a_demo_is_refused(stage: Any, box: Any) -> None:
    async with stage(box.snapshot()) as on:
        why = "The demo's memory is simulated. Without a demo, `sparkdash memory` shows who holds this box's memory."
        on.daemon.refuses = AdmissionError(why, code="no_memory_account")
        await on.press("7")
        assert why in " ".join(on.rows), "it is longer than the screen is wide"


async def test_config_toml_is_edited_as_a_file_and_kept_only_when_valid(
    stage: Any, box: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n", "utf-8")
    edits = ["guard = 7\n", "# mine\nguard = 'warn'\n"]
    async with stage(box.snapshot(), size=(100, 30)) as on:
        on.daemon.address = ON_THE_BOX
        on.daemon.listed = SettingList(file=str(file), settings=())
        monkeypatch.setattr(on.app, "edit_file", lambda draft, _line: draft.write_text(edits.pop(0), "utf-8"))
        await on.press("comma", "e")
        await on.until(lambda: "the edit is not valid" in on.text)
        assert file.read_text("utf-8") == "# mine\n"
        await on.press("enter")
        await on.until(lambda: "config.toml is saved" in on.text)
        assert file.read_text("utf-8") == "# mine\nguard = 'warn'\n"


class Gate:
    """A call of the link that answers once `opened` is set, and counts how often it was asked."""

    def __init__(self, call: Any) -> None:
        self.call, self.opened = call, asyncio.Event()

    async def __call__(self, **asked: Any) -> Any:
        await self.opened.wait()
        return await self.call(**asked)


@pytest.mark.parametrize("stops", [(), ("gpt-oss-120b",)])
async def test_enter_before_the_plan_begins_a_run_that_stops_nothing(stage: Any, box: Any, stops: Any) -> None:
    """An order that stops an engine must be seen first: there enter counts once the plan is shown."""
    async with stage(box.snapshot(), size=(100, 30)) as on:
        on.daemon.run_plan = on.daemon.run_plan.model_copy(update={"stops": stops})
        on.daemon.start_run = gate = Gate(on.daemon.start_run)
        await on.press("A", "enter")
        assert "⏎ is remembered" in on.text
        gate.opened.set()
        await on.until(lambda: "the plan is made" not in on.text)
        assert (on.daemon.asked[-1][0] == "begin") is not bool(stops)
        await on.press("enter")
        assert [order[0] for order in on.daemon.asked].count("begin") == 1


async def test_a_run_that_begins_slowly_is_begun_once(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(100, 30)) as on:
        await on.press("A")
        await on.until(lambda: "the plan is made" not in on.text)
        on.daemon.start_run = gate = Gate(on.daemon.start_run)
        await on.press("enter", "enter")
        assert "it begins" in on.text
        gate.opened.set()
        await on.until(lambda: "The run begins" in on.text)
        assert [order[0] for order in on.daemon.asked].count("begin") == 1


async def test_a_key_pressed_twice_while_its_plan_is_made_asks_once(stage: Any, box: Any) -> None:
    async with stage(box.snapshot()) as on:
        on.daemon.plan = gate = Gate(on.daemon.plan)
        await on.press("t", "t")
        gate.opened.set()
        await on.until(lambda: "flip to" in on.text)
        await on.press("escape")
        assert "flip to" not in on.text


async def test_keys_typed_while_a_dialog_thinks_wait_for_it(stage: Any, box: Any) -> None:
    """Keys are not pressed on the page below; Escape gives up waiting."""
    async with stage(box.snapshot()) as on:
        on.daemon.plan = gate = Gate(on.daemon.plan)
        await on.press("2", "j", "s", "e", "enter")
        assert on.daemon.asked == []
        gate.opened.set()
        await on.until(lambda: on.daemon.asked == [("use", box.coder)])
