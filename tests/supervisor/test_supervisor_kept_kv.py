"""Conversations kept over a switch, with a llama-server that does what real ones were seen or reported to do."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from surroundings.house import make_profile

from sparkdash.engines.registry import adapter_of
from sparkdash.supervisor.swap import kept_kv
from sparkdash.supervisor.swap.kept_kv import KeptKv, Proof, SavedSlot, choose, dearer, remove_unwanted
from sparkdash.units import GIB
from sparkdash.upstream import Upstream

PROOF = Proof(tokens=2000, bytes=200_000, prefill_s=4, save_s=0.5, answer="spark")


class Llama:
    """llama-servers in the same place, one after another: `slots` are those of the present one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slots = [0, 0]
        self.build = "b1"
        self.is_hybrid = False
        """Reports a restore, and computes everything again."""
        self.writes_all = True
        self.dies_at: str | None = None
        """Action at which it closes the connection."""
        self.hangs_at: str | None = None
        self.arrived = asyncio.Event()
        self.restored: list[str] = []
        self._computes_again = False

    def restart(self) -> None:
        self.slots, self.restored, self._computes_again = [0, 0], [], False

    async def props(self, _request: web.Request) -> web.Response:
        return web.json_response({"build_info": self.build, "chat_template": "{{ messages }}"})

    async def list_slots(self, _request: web.Request) -> web.Response:
        return web.json_response([{"id": n, "n_prompt_tokens": held} for n, held in enumerate(self.slots)])

    async def complete(self, _request: web.Request) -> web.Response:
        cached = 0 if self._computes_again else min(self.slots[0], 1999)
        self.slots[0] = 2000
        timings = {"cache_n": cached, "prompt_n": 2000 - cached, "prompt_ms": 9000.0}
        return web.json_response({"content": "spark", "timings": timings})

    async def act(self, request: web.Request) -> web.Response:
        slot, action = int(request.match_info["slot"]), request.query["action"]
        name = (await request.json())["filename"]
        if action == self.hangs_at and not name.startswith("proof"):
            (self.folder / name).write_bytes(b"half")
            self.arrived.set()
            await asyncio.Event().wait()
        if action == self.dies_at and not name.startswith("proof"):
            assert request.transport is not None
            request.transport.close()
        if action == "save":
            size = self.slots[slot] * 10
            (self.folder / name).write_bytes(b"k" * (size if self.writes_all else size // 2))
            return web.json_response({"n_saved": self.slots[slot], "n_written": size})
        if action == "erase":
            self.slots[slot] = 0
            return web.json_response({"n_erased": 1})
        self.slots[slot] = (self.folder / name).stat().st_size // 10
        self._computes_again = self.is_hybrid
        self.restored.append(name)
        return web.json_response({"n_restored": self.slots[slot]})


@pytest.fixture
async def ground(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[Any]:
    """The engine, the profile's `KeptKv`, and the notices."""
    profile = make_profile("a", engine="llamacpp", keep_kv={"max_gib": 1})
    told: list[str] = []
    folder = tmp_path / "kv" / "me" / "a"
    llama = Llama(folder)
    app = web.Application()
    app.router.add_get("/props", llama.props)
    app.router.add_get("/slots", llama.list_slots)
    app.router.add_post("/completion", llama.complete)
    app.router.add_post("/slots/{slot}", llama.act)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    async with Upstream() as upstream:
        tools: Any = SimpleNamespace(
            settings=SimpleNamespace(cache_dir=tmp_path, hf_home=tmp_path),
            owner="me",
            adapter=adapter_of,
            upstream=upstream,
            registry=SimpleNamespace(notice=lambda _level, _code, text, _profile: told.append(text)),
            catalog=SimpleNamespace(profiles={"a": profile}),
        )
        yield SimpleNamespace(
            llama=llama, kept=KeptKv(tools, profile), told=told, tools=tools, url=f"http://127.0.0.1:{unused_tcp_port}"
        )
    await runner.cleanup()


async def started(ground: Any) -> Any:
    """Start the profile's next engine; return what comes back."""
    ground.llama.restart()
    await ground.kept.prepare("image")
    return await ground.kept.restore(ground.url, "image")


async def left(ground: Any, *held: int) -> None:
    ground.llama.slots = list(held)
    await ground.kept.save(ground.url)


async def saved(ground: Any) -> None:
    """A first start, and a conversation that is kept at its end."""
    await started(ground)
    await left(ground, 5000, 0)


async def test_what_was_saved_comes_back_into_its_slots(ground: Any) -> None:
    """A slot with a word or two is not worth a file; figures are told as this box took them."""
    await started(ground)
    await left(ground, 30, 100_000)
    back = await started(ground)
    assert ground.llama.slots == [0, 100_000]
    assert (back.tokens, back.prefill_s) == (100_000, 450.0)
    assert ground.told == [f"a: 100,000 tokens back in {back.s:.1f}s instead of 7m30s."]


async def test_an_engine_that_only_says_that_it_restored_keeps_nothing(ground: Any) -> None:
    """As hybrid models do. The reason is told once, and from then on nothing is written for this launch."""
    ground.llama.is_hybrid = True
    await started(ground)
    await left(ground, 5000, 5000)
    assert await started(ground) is None
    await left(ground, 5000, 5000)
    assert await started(ground) is None
    assert ground.told == [
        "a: its conversations are not kept: of 2,000 restored tokens the engine finds 0 in its cache, and computes "
        "the others again."
    ]
    assert [file.name for file in ground.llama.folder.glob("slot*")] == []


async def test_another_build_computes_everything_again(ground: Any) -> None:
    await saved(ground)
    ground.llama.build = "b2"
    assert await started(ground) is None
    assert ground.llama.restored == []


async def test_a_full_disk_is_named_and_its_torn_file_never_restored(ground: Any) -> None:
    await started(ground)
    ground.llama.writes_all = False
    await left(ground, 5000, 0)
    assert "is the disk full?" in ground.told[0]
    assert await started(ground) is None
    assert ground.llama.restored == ["proof.bin"]


async def test_a_disk_that_is_full_at_the_first_start_is_no_fault_of_the_launch(
    ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-server (0c1e570) answers 500 there, as engines that cannot save at all do. The next start tries again."""
    with monkeypatch.context() as full:
        full.setattr(kept_kv, "DISK_KEPT", 1 << 60)
        await started(ground)
    assert "of the disk stay free" in ground.told[0]
    await left(ground, 5000, 0)
    await saved(ground)
    assert (await started(ground)).tokens == 5000


async def test_a_daemon_that_ends_while_saving_leaves_nothing_to_restore(ground: Any) -> None:
    """Not even what an earlier switch had saved: the conversation has gone on since."""
    await saved(ground)
    await started(ground)
    ground.llama.hangs_at = "save"
    saving = asyncio.create_task(left(ground, 6000, 0))
    await ground.llama.arrived.wait()
    saving.cancel()
    with suppress(asyncio.CancelledError):
        await saving
    assert await started(ground) is None
    assert sorted(file.name for file in ground.llama.folder.iterdir()) == ["kept.json", "proof.bin"]


async def test_a_file_that_ends_the_engine_is_not_restored_again(ground: Any) -> None:
    await saved(ground)
    ground.llama.dies_at = "restore"
    assert await started(ground) is None
    ground.llama.dies_at = None
    assert await started(ground) is None
    assert ground.llama.restored == []


async def test_a_start_that_failed_before_keeps_what_is_there(ground: Any) -> None:
    await saved(ground)
    await ground.kept.prepare("image")
    assert (await started(ground)).tokens == 5000


async def test_conversations_go_with_their_profile(ground: Any) -> None:
    await started(ground)
    await remove_unwanted(ground.tools)
    assert ground.llama.folder.exists()
    ground.tools.catalog.profiles.clear()
    await remove_unwanted(ground.tools)
    assert not ground.llama.folder.exists()


def test_the_longest_conversations_are_chosen_as_far_as_they_fit() -> None:
    """By the bytes of a token that the proof has shown; one that computes now is no conversation yet."""
    slots = [
        {"id": 0, "n_prompt_tokens": 3000},
        {"id": 1, "n_prompt_tokens": 9000},
        {"id": 2, "n_prompt_tokens": 4000},
        {"id": 3, "n_prompt_tokens": 9999, "is_processing": True},
        {"id": 4, "n_prompt_tokens": 100},
        {"id": 5},
    ]
    assert choose(slots, PROOF, 1_250_000) == (
        [SavedSlot(slot=1, tokens=9000, bytes=900_000), SavedSlot(slot=0, tokens=3000, bytes=300_000)],
        1,
    )


def test_it_is_kept_only_where_this_box_computes_longer_than_it_reads_and_writes() -> None:
    assert dearer(PROOF, 0.5) is None
    assert dearer(PROOF, 3.5) == "saving 2,000 tokens and reading them back takes 4.0s, computing them 4.0s"


class Blocks:
    """Files of a vLLM with a bound of ten blocks."""

    def __init__(self, tools: Any) -> None:
        self.profile = make_profile("a", engine="vllm", keep_kv={"max_gib": 10 * BLOCK / GIB})
        self.folder = tools.settings.cache_dir / "kv" / "me" / "a"
        self._tools = tools

    async def started(self, image: str = "image") -> None:
        await KeptKv(self._tools, self.profile).prepare(image)

    def write(self, *numbers: int) -> None:
        """Write blocks as old as their numbers are small."""
        for number in numbers:
            file = self.folder / "model_0_r0" / "abc" / "de_g0" / f"{number}.bin"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"k" * BLOCK)
            os.utime(file, (number, number))

    def numbers(self) -> list[int]:
        return sorted(int(file.stem) for file in self.folder.rglob("*.bin"))


BLOCK = 1024


async def test_blocks_of_the_same_launch_are_still_there_and_those_of_another_image_are_not(ground: Any) -> None:
    """vLLM knows a model by its path alone."""
    blocks = Blocks(ground.tools)
    await blocks.started()
    blocks.write(1, 2)
    await blocks.started()
    assert blocks.numbers() == [1, 2]
    await blocks.started("another")
    assert blocks.numbers() == []
    assert blocks.folder.stat().st_mode & 0o777 == 0o700


async def test_torn_blocks_are_told_and_removed_before_the_engine_reads_them(ground: Any) -> None:
    """vLLM (0.32) ends a conversation at each, and removes one a start."""
    blocks = Blocks(ground.tools)
    await blocks.started()
    blocks.write(1, 2, 3)
    (torn,) = blocks.folder.rglob("2.bin")
    torn.write_bytes(b"k")
    torn.with_name("4.bin_77.tmp").write_bytes(b"k" * BLOCK)
    await blocks.started()
    assert blocks.numbers() == [1, 3]
    assert ground.told == ["a: 2 blocks of its conversations are computed again: their files are damaged."]


async def test_blocks_beyond_the_bound_go_the_oldest_first_while_the_engine_runs(
    ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_kv, "BOUND_EVERY_S", 0.01)
    blocks = Blocks(ground.tools)
    await blocks.started()
    async with asyncio.timeout(10):
        bounding = asyncio.create_task(KeptKv(ground.tools, blocks.profile).bound_blocks())
        blocks.write(*range(10))
        assert blocks.numbers() == [*range(10)]
        blocks.write(11, 12)
        while len(blocks.numbers()) > 8:  # noqa: ASYNC110 - a file that goes tells nobody
            await asyncio.sleep(0.01)
        bounding.cancel()
    assert blocks.numbers() == [4, 5, 6, 7, 8, 9, 11, 12]


async def test_a_disk_with_less_than_is_to_stay_free_loses_all_blocks(
    ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_kv, "DISK_KEPT", 1 << 60)
    blocks = Blocks(ground.tools)
    await blocks.started()
    blocks.write(1, 2)
    await blocks.started()
    assert blocks.numbers() == []


def test_conversations_are_kept_where_a_restored_one_is_the_same() -> None:
    """Slots with LoRA adapters would pass for the model's alone; vLLM needs a file tier, and no connector of its own."""
    plain = make_profile("a", engine="llamacpp")
    given = plain.replace(args={"lora": "/adapter.gguf"}), plain.replace(adapters=("sql",)), plain.replace(nodes=2)
    assert [adapter_of(each).keeps_kv(each) for each in (plain, *given)] == [True, False, False, False]
    plain = make_profile("a", engine="vllm", engine_version="0.32", keep_kv={"max_gib": 1})
    given = plain.replace(engine_version="0.31"), plain.replace(args={"kv-offloading-size": 4}), plain.replace(nodes=2)
    assert [adapter_of(each).keeps_kv(each) for each in (plain, *given)] == [True, False, False, False]
    assert dict(adapter_of(plain).memory_beside(plain)) == {"keep_kv": 4_000_000_000}
