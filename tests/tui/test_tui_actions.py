"""Actions from a screen: a run, a pin, an edit, a dry run, a setting. Each is seen to reach the daemon."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from states_pages import Commands, with_a_plan, with_holders, with_settings

from sparkdash.api.answers import SettingList
from sparkdash.client.address import Address
from sparkdash.domain.node import Diagnosis, Finding, Status
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.tui.lines.dialog_texts import command_lines
from sparkdash.tui.local_commands import LocalCommands
from sparkdash.tui.text import plain_text
from sparkdash.units import GIB

ON_THE_BOX = Address("http://localhost", Path("/run/sparkdash.sock"))
FINDING = {"level": "error", "line": 7, "key": "engine", "message": "must be one of vllm, not 'vlm'", "hint": "'vllm'?"}


class PretendCommands(Commands):
    """The box's own commands: documents as the real ones print them."""

    async def check(self, file: Path) -> dict[str, Any]:
        text = file.read_text("utf-8")  # noqa: ASYNC240 - a small file
        return {"findings": [FINDING | {"file": str(file)}] if "vlm" in text else []}

    async def pull_weights(self, profile: str) -> AsyncIterator[dict[str, Any]]:
        yield {"weights": [profile], "came_bytes": GIB, "total_bytes": 4 * GIB, "bytes_per_s": None, "eta_s": 9.0}


async def test_a_run_of_the_marked_profiles_begins_after_its_plan_was_shown(large: Any, box: Any) -> None:
    with_a_plan(box, large.daemon)
    note = "Five prompts show a true +5 % in one of six cells."
    large.daemon.run_plan = large.daemon.run_plan.model_copy(update={"note": note})
    await large.press("A")
    assert any(f"note {note}" in row for row in large.rows), large.text
    large.daemon.start_run = gate = Gate(large.daemon.start_run)
    await large.press("j", "l", "enter")
    assert "careful" in large.text
    assert "the plan is made" in large.text
    assert "begin" not in [order[0] for order in large.daemon.asked], "its plan is not there"
    gate.opened.set()
    await large.until(lambda: "plan      4 launches" in large.text)
    await large.press("enter")
    assert large.daemon.asked[-1] == ("begin", [box.gpt, box.coder], "smoke", "careful", None)
    assert "The run begins" in large.text


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


@pytest.mark.parametrize(("name", "keys", "texts", "wrong", "is_kept"), [
    ("mine.yaml", ("2", "e"), ("engine: vllm\n", "engine: vlm\n", "engine: sglang\n"),
     "✗ mine.yaml:7: engine: must be one of vllm, not 'vlm'", lambda on: ("reload",) in on.daemon.asked),
    ("config.toml", ("comma", "e"), ("# mine\n", "guard = 7\n", "# mine\nguard = 'warn'\n"),
     "guard: must be", lambda on: "config.toml is saved" in on.text),
])  # fmt: skip
async def test_an_edit_is_kept_only_when_it_is_valid(
    stage: Any, box: Any, tmp_path: Path, monkeypatch: Any, name: str, keys: tuple[str, ...], texts: tuple[str, ...],
    wrong: str, is_kept: Any,
) -> None:  # fmt: skip
    file, (before, *edits) = tmp_path / name, texts
    file.write_text(before, "utf-8")
    async with stage(box.snapshot(), size=(100, 30)) as on:
        on.daemon.address = ON_THE_BOX
        on.daemon.files[box.gpt] = SimpleNamespace(source=f"{file}:1")
        on.daemon.listed = SettingList(file=str(file), settings=())
        on.app.orders.commands = PretendCommands()
        monkeypatch.setattr(on.app, "edit_file", lambda draft, _line: draft.write_text(edits.pop(0), "utf-8"))
        await on.press(*keys)
        await on.until(lambda: "the edit is not valid" in on.text)
        assert wrong in " ".join(on.rows)
        assert file.read_text("utf-8") == before
        await on.press("enter")
        await on.until(lambda: is_kept(on))
        assert file.read_text("utf-8") == texts[-1]


async def test_a_profile_of_the_demo_is_no_file_to_edit(stage: Any, box: Any) -> None:
    """The source of a demo's profile is the file that ships: a copy would land among the owner's own profiles."""
    world = box.snapshot()
    demo = world.daemon.model_copy(update={"simulated": True})
    async with stage(world.model_copy(update={"daemon": demo})) as on:
        on.daemon.address = ON_THE_BOX
        await on.press("2", "e")
        assert "gpt-oss-120b is simulated: there is nothing to edit." in on.text


async def test_a_dry_run_and_the_weights_are_for_the_daemons_own_box(stage: Any, box: Any) -> None:
    """From another one the command line is named."""
    world = box.snapshot()
    with_weights = world.profiles[0].model_copy(update={"weights": (ModelRef(hf="org/m"),)})
    async with stage(world.model_copy(update={"profiles": (with_weights, *world.profiles[1:])})) as on:
        on.app.orders.commands = PretendCommands()
        await on.press("2", "d")
        assert "The command of a profile is made from the files of the daemon's box." in " ".join(on.rows)
        on.daemon.address = ON_THE_BOX
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


async def test_a_setting_is_changed_and_a_refused_value_stays_with_its_reason(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(130, 30)) as on:
        with_settings(box, on.daemon)
        await on.press("comma")
        on.daemon.refuses = ProfileError("reserve_gib: must be at least 0.")
        await on.press("enter", "backspace", "backspace", "minus", "1", "enter")
        assert on.daemon.asked == [("setting", "reserve_gib", "-1")]
        assert "reserve_gib: must be at least 0." in " ".join(on.rows)
        on.daemon.refuses = None
        await on.press("backspace", "backspace", "1", "4", "enter")
        assert on.daemon.asked[-1] == ("setting", "reserve_gib", "14")
        assert "reserve_gib is 14: a change holds at once." in on.text
        await on.press("G", "enter")
        assert "sets is a table: e edits /home/me/.config/sparkdash/config.toml" in on.text
        await on.press("escape")
        assert "▸" not in on.text
        assert "in flight" in on.text


async def test_the_box_page_tells_how_to_free_what_others_hold(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(120, 30)) as on:
        with_holders(box, on.daemon)
        await on.press("7")
        await on.until(lambda: "121 GiB in all" in on.text)
        await on.press("j")
        assert "→ podman stop it" in on.text


async def test_the_box_page_examines_once_and_has_the_power_where_no_doctor_is(stage: Any, box: Any) -> None:
    """An examination takes seconds of the box: the page keeps it, `r` begins another."""
    async with stage(box.snapshot(), size=(100, 30)) as on:
        on.daemon.refuses = AdmissionError("The demo's box is simulated.", code="no_doctor")
        await on.press("7")
        assert "╭ power and clock" in on.text
        on.daemon.refuses = None
        on.daemon.diagnosis = Diagnosis(findings=(Finding(name="linger", status=Status.WARN, evidence="engines end"),))
        on.daemon.asked.clear()
        await on.press("1", "7", "1", "7")
        assert "warn linger engines end" in on.rows
        assert on.daemon.asked.count(("doctor",)) == 1
        assert "power and clock" not in on.text


class Gate:
    """A call of the link that answers once `opened` is set."""

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


async def test_a_key_pressed_twice_while_its_plan_is_made_asks_once(on: Any) -> None:
    on.daemon.plan = gate = Gate(on.daemon.plan)
    await on.press("t", "t")
    gate.opened.set()
    await on.until(lambda: "flip to" in on.text)
    await on.press("escape")
    assert "flip to" not in on.text


async def test_keys_typed_while_a_dialog_thinks_wait_for_it(on: Any, box: Any) -> None:
    """Keys are not pressed on the page below; Escape gives up waiting."""
    on.daemon.plan = gate = Gate(on.daemon.plan)
    await on.press("2", "j", "s", "e", "enter")
    assert on.daemon.asked == []
    gate.opened.set()
    await on.until(lambda: on.daemon.asked == [("use", box.coder)])
