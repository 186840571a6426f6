"""Conversations kept over a switch: llama-server's slots, saved when it leaves and restored when its profile is back.

Each start proves that its engine can: a prompt of ours, saved at the launch's first start, is restored and asked again.
Unless the engine then finds 90 % of it in its cache and answers alike, nothing else is restored, and the reason told:
hybrid models report success and prefill everything. What another launch saved is removed.
A file that is shorter than it was is never handed to the engine: llama-server (0c1e570) aborts at one.

vLLM (0.32) writes blocks as it computes them, and finds them again by the hash of their tokens. It bounds nothing, and
knows a model by its path alone: both are done here.
"""

import asyncio
import errno
import json
import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from sparkdash.domain.base import Frozen
from sparkdash.domain.event import Level
from sparkdash.domain.node import LOCAL
from sparkdash.domain.phrases import kv_back_text
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import KvBack
from sparkdash.engines.containers import KEPT_KV, kept_kv_folder
from sparkdash.errors import HostError, UpstreamError
from sparkdash.host.memory.page_cache import flush_uncached
from sparkdash.host.thread import in_thread
from sparkdash.paths import read_small_file, replace_file
from sparkdash.supervisor.canary import launch_key
from sparkdash.supervisor.tools import Tools
from sparkdash.units import GIB, duration, gib
from sparkdash.upstream.client import SmallResponse, engine_refused

PROMPT = "spark memory engine stream token cache profile swap " * 250
"""2,000 tokens in most vocabularies: more than the window of most models with sliding attention."""
SHARE = 0.9
"""Least share of a restored prompt that the engine must find in its cache."""
LEAST_TOKENS = 512
DISK_KEPT = 2 * GIB
"""Bytes of the disk that stay free."""
LIMIT_S = 60.0
"""Longest time of one save or restore, which other models' clients wait for."""
LOOK_S = 3.0
BOUND_EVERY_S = 60.0
"""Pause between two looks at the blocks: a Spark computes some 10 GB of them in it."""
BOUND_SHARE = 0.8
"""Share of the bound that blocks are cut down to."""
_PROOF = "proof.bin"


class Proof(Frozen):
    """The prompt of ours as this launch saved it."""

    tokens: int
    bytes: int
    prefill_s: float
    save_s: float
    """Seconds until it was on the disk."""
    answer: str


class SavedSlot(Frozen):
    """Conversation on the disk."""

    slot: int
    tokens: int
    bytes: int

    @property
    def file(self) -> str:
        return f"slot{self.slot}.bin"


class Kept(Frozen):
    """Knowledge of one launch."""

    launch: str
    proof: Proof | None = None
    refused: str | None = None
    """Why this launch keeps nothing; None while it may."""
    slots: tuple[SavedSlot, ...] = ()


def choose(slots: Sequence[Any], proof: Proof, room: int) -> tuple[list[SavedSlot], int]:
    """Choose the slots to save from the engine's list, the longest first; return them and the number left out."""
    long = [(one.get("n_prompt_tokens") or 0, one["id"]) for one in slots if not one.get("is_processing")]
    long = sorted((one for one in long if one[0] >= LEAST_TOKENS), reverse=True)
    chosen: list[SavedSlot] = []
    for tokens, slot in long:
        size = tokens * proof.bytes // proof.tokens
        if size <= room:
            chosen.append(SavedSlot(slot=slot, tokens=tokens, bytes=size))
            room -= size
    return chosen, len(long) - len(chosen)


def dearer(proof: Proof, restore_s: float) -> str | None:
    """Say why keeping does not pay on this box, by its own figures; None if it does. All grow with the tokens."""
    if proof.save_s + restore_s < proof.prefill_s:
        return None
    took = f"saving {proof.tokens:,} tokens and reading them back takes {duration(proof.save_s + restore_s)}"
    return f"{took}, computing them {duration(proof.prefill_s)}"


class _Files:
    """The folder of one profile. `kept.json` is of the engine that runs, `before.json` of the one before it."""

    def __init__(self, tools: Tools, profile: Profile) -> None:
        self.folder = Path(kept_kv_folder(profile.name, str(tools.settings.cache_dir.expanduser()), tools.owner))
        self._now = self.folder / "kept.json"
        self._before = self.folder / "before.json"

    def prepare(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        with suppress(FileNotFoundError):
            self._now.replace(self._before)

    def prepare_blocks(self, launch: str) -> int:
        """Remove the blocks of another launch, and torn ones; return the number of these. Raises OSError.

        vLLM (0.32) removes a torn block when it reads it, and ends the conversation there: one for each start.
        """
        before = self.before()
        if before is None or before.launch != launch:
            shutil.rmtree(self.folder)
            self.prepare()
        replace_file(self._now, Kept(launch=launch).model_dump_json().encode())
        sizes = {file: file.stat().st_size for file in self.folder.rglob("*.bin*")}
        torn = [file for file, size in sizes.items() if size < max(sizes.values()) or file.suffix == ".tmp"]
        for file in torn:
            file.unlink()
        return len(torn)

    def cut(self, most: int) -> None:
        """Remove the blocks that were used longest ago, if there are more bytes. Raises OSError."""
        found = list[tuple[float, int, Path]]()
        for file in self.folder.rglob("*.bin*"):
            with suppress(FileNotFoundError):  # the engine renames those that it has written
                seen = file.stat()
                found.append((max(seen.st_atime, seen.st_mtime), seen.st_size, file))
        held = sum(size for _, size, _ in found)
        if held <= (room := min(most, held + self.room(most))):
            return
        for _, size, file in sorted(found):
            if held <= BOUND_SHARE * room:
                return
            file.unlink(missing_ok=True)
            held -= size

    def before(self) -> Kept | None:
        return _read(self._before)

    def now(self) -> Kept | None:
        return _read(self._now)

    def keep(self, kept: Kept) -> None:
        """Write the index, and remove files that are not in it. Raises OSError."""
        replace_file(self._now, kept.model_dump_json().encode())
        self._before.unlink(missing_ok=True)
        stay = {self._now.name, *([_PROOF] if kept.proof else []), *(one.file for one in kept.slots)}
        for file in self.folder.iterdir():
            if file.name not in stay:
                file.unlink()

    def begin_restore(self) -> None:
        """Forget the index, so that files that end the engine are not restored again. Raises OSError."""
        self._before.unlink(missing_ok=True)

    def is_whole(self, name: str, size: int) -> bool:
        with suppress(OSError):
            return (self.folder / name).stat().st_size == size
        return False

    def room(self, most: int) -> int:
        return min(most, shutil.disk_usage(self.folder).free - DISK_KEPT)


def _read(file: Path) -> Kept | None:
    with suppress(OSError, ValidationError):
        return Kept.model_validate_json(read_small_file(file))
    return None


class _Answer(NamedTuple):
    cached: int
    tokens: int
    prefill_s: float
    text: str

    @property
    def is_found(self) -> bool:
        return self.cached >= SHARE * self.tokens


def keeps_conversations(tools: Tools, profile: Profile | None, nodes: Collection[str]) -> bool:
    kept = profile is not None and profile.keep_kv is not None and tools.adapter(profile).keeps_kv(profile)
    return kept and tuple(nodes) == (LOCAL,)


class KeptKv:
    """The conversations of one profile's engine on this box."""

    def __init__(self, tools: Tools, profile: Profile) -> None:
        self._tools = tools
        self._profile = profile
        self._files = _Files(tools, profile)
        self.most = int((profile.keep_kv.max_gib if profile.keep_kv else 0) * GIB)
        self.are_blocks = tools.adapter(profile).writes_kv

    async def prepare(self, image_id: str | None) -> None:
        """Make the folder, before the engine starts. Raises HostError."""

        def work() -> int:
            self._files.prepare()
            if not self.are_blocks:
                return 0
            hf_home = self._tools.settings.hf_home.expanduser()
            torn = self._files.prepare_blocks(launch_key(self._profile, str(image_id), hf_home))
            self._files.cut(self.most)
            return torn

        try:
            if torn := await in_thread(work):
                self._tell(f"{torn:,} blocks of its conversations are computed again: their files are damaged")
        except OSError as error:
            raise HostError(
                f"The folder for the conversations of {self._profile.name} cannot be prepared: {error}.",
                code="mount_missing",
                hint="Correct `cache_dir` in config.toml, or remove `keep_kv` from the profile.",
            ) from None

    async def bound_blocks(self) -> None:
        """Hold the engine's blocks to the profile's bound while it runs; it computes again what it finds no more."""
        while True:
            await asyncio.sleep(BOUND_EVERY_S)
            try:
                await in_thread(partial(self._files.cut, self.most))
            except OSError as error:
                self._tell(f"its conversations are not held to {gib(self.most)}: {error}")
                return

    async def restore(self, url: str, image_id: str) -> KvBack | None:
        """Restore what the profile's last engine saved, if this launch can; return what came back.

        Never fails. An engine that dies of a file finds none at its next start.
        """
        try:
            return await self._restore(url, image_id)
        except (UpstreamError, OSError) as error:
            self._tell(f"its conversations are not restored: {_words(error)}")
        return None

    async def _restore(self, url: str, image_id: str) -> KvBack | None:
        props = await self._get(f"{url}/props")
        hf_home = self._tools.settings.hf_home.expanduser()
        build = (str(props.get("build_info")), str(props.get("chat_template")))
        launch = await in_thread(lambda: launch_key(self._profile, image_id, hf_home, *build))
        kept = await in_thread(self._files.before)
        await in_thread(self._files.begin_restore)
        if kept is None or kept.launch != launch:
            kept = Kept(launch=launch)
        if kept.refused is None:
            kept = await self._judge(url, kept)
            if kept.refused:
                self._tell(f"its conversations are not kept: {kept.refused}")
        began = time.monotonic()
        back = [] if kept.refused else [one for one in kept.slots if await self._is_back(url, one)]
        took_s = time.monotonic() - began
        kept = kept.replace(slots=tuple(back))
        await in_thread(partial(self._files.keep, kept))
        return self._told(kept, took_s) if back else None

    async def _judge(self, url: str, kept: Kept) -> Kept:
        """Find out whether this launch can restore, and whether it pays; the first start only saves for that."""
        proof = kept.proof
        try:
            if proof is None or not self._files.is_whole(_PROOF, proof.bytes):
                kept = await self._prove(url, kept.launch)
            else:
                restore_s = await self._read_back(url, 0, _PROOF, proof.tokens)
                kept = kept.replace(refused=_fault(await self._ask(url), proof) or dearer(proof, restore_s))
            await self._order(url, 0, "erase")
        except UpstreamError as error:
            if error.code != "engine_refused":
                raise
            kept = kept.replace(refused=_words(error))
        return kept

    async def _prove(self, url: str, launch: str) -> Kept:
        first, again = await self._ask(url), await self._ask(url)
        if not again.is_found:
            return Kept(launch=launch, refused="the engine does not find even its last prompt in its cache")
        began = time.monotonic()
        saved = await self._save(url, 0, _PROOF)
        proof = Proof(
            tokens=saved.tokens,
            bytes=saved.bytes,
            prefill_s=first.prefill_s,
            save_s=time.monotonic() - began,
            answer=again.text,
        )
        return Kept(launch=launch, proof=proof, refused=dearer(proof, proof.save_s))

    async def _is_back(self, url: str, one: SavedSlot) -> bool:
        if not self._files.is_whole(one.file, one.bytes):
            self._tell(f"a conversation of {one.tokens:,} tokens is not restored: its file is damaged")
            return False
        try:
            await self._read_back(url, one.slot, one.file, one.tokens)
        except UpstreamError as error:
            if error.code != "engine_refused":
                raise
            self._tell(f"a conversation of {one.tokens:,} tokens is not restored: {_words(error)}")
            return False
        return True

    async def save(self, url: str) -> None:
        """Save the conversations of an engine that leaves, if it proved at its start that it can. Never fails."""
        kept = await in_thread(self._files.now)
        if kept is None or kept.proof is None or kept.refused:
            return
        try:
            await self._save_slots(url, kept, kept.proof)
        except (UpstreamError, OSError) as error:
            self._tell(f"its conversations are not saved: {_words(error)}")

    async def _save_slots(self, url: str, kept: Kept, proof: Proof) -> None:
        slots = await self._get(f"{url}/slots")
        kept = kept.replace(slots=())
        await in_thread(partial(self._files.keep, kept))
        room = await in_thread(lambda: self._files.room(self.most - proof.bytes))
        chosen, left_out = choose(slots, proof, room)
        if left_out:
            self._tell(f"{left_out} of its conversations are not saved: {gib(max(0, room))} of disk may be used")
        for one in chosen:
            kept = kept.replace(slots=(*kept.slots, await self._save(url, one.slot, one.file)))
            await in_thread(partial(self._files.keep, kept))

    async def _save(self, url: str, slot: int, name: str) -> SavedSlot:
        """Have the engine write a slot; return once the file is on the disk. Raises OSError: the disk is full."""
        if await in_thread(partial(self._files.room, 1)) < 1:
            raise OSError(errno.ENOSPC, f"{gib(DISK_KEPT)} of the disk stay free ({self._files.folder})")
        told = await self._order(url, slot, "save", name)
        size = int(told.get("n_written") or 0)
        if not size or not self._files.is_whole(name, size):
            raise OSError(
                errno.ENOSPC, f"the engine did not write the whole file; is the disk full? ({self._files.folder})"
            )
        await in_thread(lambda: flush_uncached(self._files.folder / name))
        return SavedSlot(slot=slot, tokens=int(told.get("n_saved") or 0), bytes=size)

    async def _read_back(self, url: str, slot: int, name: str, tokens: int) -> float:
        began = time.monotonic()
        found = (await self._order(url, slot, "restore", name)).get("n_restored")
        if found != tokens:
            raise UpstreamError(f"the engine restored {found} of {tokens} tokens", code="engine_refused")
        return time.monotonic() - began

    async def _ask(self, url: str) -> _Answer:
        body = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, "cache_prompt": True, "id_slot": 0}
        told = await self._post(f"{url}/completion", body)
        timings = told.get("timings") or {}
        cached, computed = timings.get("cache_n") or 0, timings.get("prompt_n") or 0
        return _Answer(cached, cached + computed, (timings.get("prompt_ms") or 0) / 1000, str(told.get("content")))

    async def _order(self, url: str, slot: int, action: str, name: str = "") -> Any:
        return await self._post(f"{url}/slots/{slot}?action={action}", {"filename": name})

    async def _get(self, url: str) -> Any:
        return _content(url, await self._tools.upstream.get(url, timeout_s=LOOK_S))

    async def _post(self, url: str, body: dict[str, Any]) -> Any:
        sent = json.dumps(body).encode()
        reply = await self._tools.upstream.post(url, sent, content_type="application/json", timeout_s=LIMIT_S)
        return _content(url, reply)

    def _told(self, kept: Kept, took_s: float) -> KvBack | None:
        tokens, proof = sum(one.tokens for one in kept.slots), kept.proof
        if proof is None:
            return None
        back = KvBack(tokens=tokens, s=took_s, prefill_s=proof.prefill_s * tokens / proof.tokens)
        name = self._profile.name
        self._tools.registry.notice(Level.INFO, "kv_back", f"{name}: {kv_back_text(back)}.", name)
        return back

    def _tell(self, why: str) -> None:
        self._tools.registry.notice(Level.WARNING, "kv_not_kept", f"{self._profile.name}: {why}.", self._profile.name)


def _fault(answer: _Answer, proof: Proof) -> str | None:
    if not answer.is_found:
        found = f"of {answer.tokens:,} restored tokens the engine finds {answer.cached:,} in its cache"
        return f"{found}, and computes the others again"
    if answer.text != proof.answer:
        return f"the engine answers a restored prompt with {answer.text!r}, and answered {proof.answer!r} before"
    return None


def _content(url: str, reply: SmallResponse) -> Any:
    if reply.status != 200:
        raise engine_refused(url, reply.status, reply.body)
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise UpstreamError(f"{url} answers no JSON", code="engine_refused") from None


def _words(error: Exception) -> str:
    return (error.message if isinstance(error, UpstreamError) else str(error)).rstrip(".")


async def remove_unwanted(tools: Tools) -> None:
    """Remove the conversations of profiles that keep none, or that are gone."""
    root = tools.settings.cache_dir.expanduser()
    profiles = tools.catalog.profiles.values()
    stay = {Path(kept_kv_folder(one.name, str(root), tools.owner)) for one in profiles if one.keep_kv}

    def work() -> None:
        for folder in set((root / KEPT_KV / tools.owner).glob("*")) - stay:
            shutil.rmtree(folder, ignore_errors=True)

    await in_thread(work)
