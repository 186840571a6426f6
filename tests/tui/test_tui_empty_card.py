"""Card of a box on which nothing runs: what it offers, and what each key does."""

import asyncio
from typing import Any

from sparkdash.domain.images import Inventory, Item, Stock
from sparkdash.domain.node import Diagnosis, Finding, Status
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.swap import Plan
from sparkdash.errors import ProfileError
from sparkdash.tui.first_run import BoxFindings, RunningServer, fitting
from sparkdash.units import GIB

OLLAMA = RunningServer("Ollama", "http://127.0.0.1:11434", ("qwen3-8b", "gemma4-4b", "phi-4"))


class WatchedBox:
    """A box whose look ends at once, unless the test lets it go on."""

    def __init__(self, found: BoxFindings | None = None) -> None:
        self.found = found or BoxFindings()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.done: list[tuple[str, ...]] = []
        self.refuses: ProfileError | None = None

    async def look(self, _profiles: Any) -> BoxFindings:
        self.done.append(("look",))
        await self.may_end.wait()
        return self.found

    async def recipe(self, client: str, model: str | None) -> str:
        return f"{client} uses {model}"

    async def attach(self, server: RunningServer) -> tuple[str, ...]:
        if self.refuses:
            raise self.refuses
        self.done.append(("attach", server.url))
        return server.profiles

    def run_command(self, command: str) -> None:
        self.done.append(("run", command))


def test_profiles_that_fit_beside_the_reserve_are_counted(box: Any) -> None:
    """Profiles of unknown need, for two boxes, of another program, or that cannot run are not; without figures none is."""
    able, other = box.profile("able", needs_bytes=111 * GIB), {"nodes": 2, "needs_bytes": GIB}
    changes = (
        {"needs_bytes": 112 * GIB},
        {"needs_bytes": None},
        other,
        {"cannot_run": "why"},
        {"engine": EngineKind.OPENAI},
    )
    unable = [box.profile(f"p{number}", **change) for number, change in enumerate(changes)]
    assert fitting(box.snapshot(profiles=(able, *unable))) == [able]
    assert fitting(box.snapshot(profiles=(able,), sample=None)) is None


async def test_an_idle_box_is_offered_before_it_was_looked_at(stage: Any, box: Any, daemon: Any) -> None:
    """The look goes on behind the first frame, is made once, and adds what it found."""
    here = WatchedBox(BoxFindings(servers=(OLLAMA,), clients=("codex", "zed")))
    here.may_end.clear()
    daemon.stock = Inventory(stock={box.coder: Stock(image=Item(here=True), weights=Item(here=True, size=1))})
    checks = [Finding(name=str(n), status=s, evidence="") for n, s in enumerate([Status.FAIL, Status.WARN, Status.OK])]
    daemon.diagnosis = Diagnosis(findings=tuple(checks))
    async with stage(box.snapshot(engines={}, requests={}), box=here) as on:
        assert "1 no engine runs. p profiles that fit 121.7 GiB (4, 1 already on disk)" in on.rows
        assert "2 point a client. c copies http://127.0.0.1:8484/v1" in on.rows
        assert "3 nothing at hand? d shows all of this on a simulated box" in on.rows
        assert "looking for servers, clients and faults on this box …" in on.rows
        here.may_end.set()
        await on.settle()
        assert "a attaches Ollama, port 11434: qwen3-8b and 2 more" in on.rows
        assert "2 point a client. c copies the recipe of codex; again: zed" in on.rows
        assert "! this box D doctor: 1 fault and 1 remark" in on.rows
        await on.later(5)
        assert here.done == [("look",)]


async def test_a_narrow_terminal_keeps_the_keys_and_the_words(stage: Any, box: Any) -> None:
    here = WatchedBox(BoxFindings(servers=(OLLAMA,), clients=("codex", "zed")))
    async with stage(box.snapshot(engines={}, requests={}), box=here, size=(60, 15)) as on:
        assert "a attaches Ollama, port 11434: qwen3-8b and 2 more" in on.rows
        assert "2 c copies the recipe of codex; again: zed" in on.rows


async def test_a_box_at_work_is_not_looked_at(stage: Any, box: Any) -> None:
    here = WatchedBox()
    async with stage(box.snapshot(), box=here) as on:
        await on.press("d", "a", "p")
        assert on.rows[1].startswith("╭ gpt-oss-120b")
        assert here.done == []


async def test_one_key_attaches_the_server_that_runs_and_uses_its_first_model(
    stage: Any, box: Any, daemon: Any
) -> None:
    here = WatchedBox(BoxFindings(servers=(OLLAMA,)))
    daemon.plans["qwen3-8b"] = Plan(profile="qwen3-8b", fits=True)
    async with stage(box.snapshot(engines={}, requests={}), box=here) as on:
        await on.press("a")
        assert ("attach", OLLAMA.url) in here.done
        assert [one for one in daemon.asked if one != ("doctor",)] == [("reload",), ("use", "qwen3-8b")]
        assert "a uses qwen3-8b of Ollama, port 11434" in on.rows


async def test_a_profile_that_cannot_be_written_is_said_and_nothing_is_used(stage: Any, box: Any, daemon: Any) -> None:
    here = WatchedBox(BoxFindings(servers=(OLLAMA,)))
    here.refuses = ProfileError("qwen3-8b.yaml cannot be written: No space left on device.", code="unreadable")
    async with stage(box.snapshot(engines={}, requests={}), box=here) as on:
        await on.press("a")
        assert "qwen3-8b.yaml cannot be written: No space left on device." in on.rows
        assert ("use", "qwen3-8b") not in daemon.asked


async def test_recipes_are_copied_one_client_after_the_other(stage: Any, box: Any, daemon: Any) -> None:
    here = WatchedBox(BoxFindings(clients=("codex", "zed")))
    daemon.stock = Inventory(stock={box.coder: Stock(weights=Item(here=True))})
    async with stage(box.snapshot(engines={}, requests={}), box=here) as on:
        copied = []
        for _ in range(3):
            await on.press("c")
            copied.append(on.app.clipboard)
        assert copied == [f"{client} uses {box.coder}" for client in ("codex", "zed", "codex")]


async def test_the_profiles_open_at_the_one_on_disk(stage: Any, box: Any, daemon: Any) -> None:
    daemon.stock = Inventory(stock={box.eagle: Stock(weights=Item(here=True))})
    async with stage(box.snapshot(engines={}, requests={})) as on:
        await on.press("p")
        assert on.app.screen.query_one("ProfileTable").cursor == box.eagle


async def test_a_simulated_or_distant_box_offers_no_commands(stage: Any, box: Any) -> None:
    """No one can look at it from here; its profiles and its address are offered all the same."""
    async with stage(box.snapshot(engines={}, requests={})) as on:
        assert "1 no engine runs. p profiles that fit 121.7 GiB (4)" in on.rows
        assert "simulated box" not in on.text


async def test_a_command_that_cannot_take_the_terminal_is_named(stage: Any, box: Any) -> None:
    here = WatchedBox()
    async with stage(box.snapshot(engines={}, requests={}), box=here) as on:
        await on.press("d")
        assert "This terminal cannot be left: type `sparkdash demo` in another one." in on.rows
        assert ("run", "demo") not in here.done


async def test_a_box_without_profiles_offers_the_steps_and_the_simulated_box_by_a_key_too(stage: Any, box: Any) -> None:
    """Setup and the simulated box are what a new owner can do there at once."""
    empty = box.snapshot(profiles=(), engines={}, requests={}, recent=(), swaps=(), toggle_a=None, toggle_b=None)
    async with stage(empty, size=(100, 30), box=WatchedBox()) as on:
        assert any(row.startswith("i goes through all steps") for row in on.rows)
        assert "d shows all of this on a simulated box" in on.rows
