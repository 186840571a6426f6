"""Hub: weights from the Hugging Face hub into the owner's cache, through huggingface_hub.

Owns: which of a repository's files an engine reads, how much of them is missing, whether it fits on the disk, and
fetching it. Must not know: profiles, terminals, containers. The library is loaded by the first call, never by an import.

Rule 1: what has come is kept. The library (2.x) fetches a file under a new name each time and removes it when it is
        cut, so big files come here, through the library's own `http_get`, to `blobs/HASH.incomplete`, and a later call
        goes on where they end. The library then lays out the snapshot, and writes last what a revision means.
Rule 2: a file that was resumed is hashed before it counts: who wrote its beginning is not known.
Rule 3: what is fetched or hashed leaves the page cache again: tens of GB at once would fill it.
Rule 4: no word of the library's reaches a person: its messages hold addresses that are signed.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import glob
import hashlib
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdash import __version__
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import HostError
from sparkdash.host.files.uncached import Uncached, pieces, settle
from sparkdash.host.hub.failures import as_host_error
from sparkdash.host.hub.local_weights import is_quant, is_weights, of_hub, repository
from sparkdash.host.hub.meter import DownloadMeter, WeightsProgress
from sparkdash.host.thread import in_thread
from sparkdash.units import gib

if TYPE_CHECKING:
    from huggingface_hub import HfApi

AT_ONCE = 4
"""Files fetched at a time: one connection to the hub's storage does not fill a fast line."""
TICK_S = 0.25
"""How often progress is told."""
OVER_HTTP = 50 * 10**9
"""Bytes. The hub gives larger files through xet only, which the library speaks."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository that an engine reads."""

    path: str
    size: int
    sha256: str | None
    """Of its content, for big files only; the cache keeps them under it."""
    missing: int
    """Bytes still to come."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A repository at one commit."""

    repo: str
    revision: str
    commit: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(file.size for file in self.files)

    @property
    def missing(self) -> int:
        """Bytes still to come."""
        return sum(file.missing for file in self.files)


Plan = tuple[Listed, ...]


class Hub:
    """The hub, and one owner's cache. `endpoint` None: the hub's usual address; `free(folder)` tells free bytes."""

    def __init__(
        self, hf_home: Path, *, endpoint: str | None = None, free: Callable[[Path], int] | None = None
    ) -> None:
        self._home = hf_home
        self._endpoint = endpoint
        self._free = free or _free

    async def plan(self, refs: Iterable[ModelRef]) -> Plan:
        """What the hub has of these repositories now, and how much of it is missing here. Paths are passed over.

        Raises:
            HostError: hub_unreachable, weights_unknown (no such repository or revision), weights_gated, token_refused.
        """
        asked = dict.fromkeys((*of_hub(ref.hf), ref.revision or "main") for ref in refs if ref.hf)
        return tuple([await in_thread(functools.partial(self._list, *one)) for one in asked])

    def check_space(self, plan: Plan) -> None:
        """Raises HostError(code="disk_full") when what is missing does not fit on the cache's disk."""
        needs, free = sum(one.missing for one in plan), self._free(self._home)
        if needs > free:
            raise HostError(
                f"{gib(needs)} of weights are missing, and the disk of {self._home} has {gib(free)} free.",
                code="disk_full",
                hint=f"Free {gib(needs - free)} there, or move the cache with `hf_home` in config.toml.",
            )

    async def fetch(self, plan: Plan) -> AsyncGenerator[WeightsProgress, None]:
        """Fetch what is missing, telling how far it is; the last item has `done`. Left early, it stops by itself.

        Raises:
            HostError: as `plan`, and disk_full, cache_unusable, weights_damaged, weights_busy (another program fetches
                the same file).
        """
        meter = DownloadMeter(sum(one.size for one in plan), sum(one.missing for one in plan))
        work = asyncio.create_task(self._fetch(plan, meter))
        try:
            while not work.done():
                yield meter.now()
                await asyncio.wait({work}, timeout=TICK_S)
            await work
            yield meter.end()
        finally:
            meter.stop()
            work.cancel()

    async def _fetch(self, plan: Plan, meter: DownloadMeter) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def blob(listed: Listed, file: HubFile) -> None:
            async with gate:
                fetch = self._blob if file.size <= OVER_HTTP else self._huge
                await in_thread(functools.partial(fetch, listed, file, meter))

        big = [(one, file) for one in plan for file in one.files if file.missing and file.sha256]
        tasks = [asyncio.create_task(blob(*one)) for one in big]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        for listed in plan:
            await in_thread(functools.partial(self._lay_out, listed))

    # in threads of their own

    def _list(self, repo: str, quant: str | None, revision: str) -> Listed:
        from huggingface_hub.hf_api import RepoFile

        with as_host_error(repo, revision):
            api = self._api()
            commit = api.model_info(repo, revision=revision).sha or revision
            tree = api.list_repo_tree(repo, recursive=True, revision=commit)
            found = {file.path: file for file in tree if isinstance(file, RepoFile)}
        files = tuple(self._file(repo, commit, found[name]) for name in wanted_files(found, quant))
        return Listed(repo, revision, commit, files)

    def _file(self, repo: str, commit: str, told: Any) -> HubFile:
        place = repository(self._home, repo)
        sha256 = told.lfs.sha256 if told.lfs else None
        blob = place / "blobs" / (sha256 or told.blob_id)
        if blob.exists() or (place / "snapshots" / commit / told.path).exists():
            return HubFile(told.path, told.size, sha256, 0)
        came = _size(_part(blob)) if sha256 else 0
        return HubFile(told.path, told.size, sha256, told.size - came if came <= told.size else told.size)

    def _blob(self, listed: Listed, file: HubFile, meter: DownloadMeter) -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # re-exported there

        blob = repository(self._home, listed.repo) / "blobs" / str(file.sha256)
        part, url = _part(blob), hf_hub_url(listed.repo, file.path, revision=listed.commit, endpoint=self._endpoint)
        headers = build_hf_headers(library_name="sparkdash", library_version=__version__)
        bar: Any = functools.partial(meter.bar, file.size - file.missing)
        with as_host_error(listed.repo, listed.revision), _locked(part, listed.repo) as out:
            if blob.exists():  # another program was quicker
                part.unlink(missing_ok=True)
                return
            came = out.tell() if out.tell() <= file.size else out.truncate(0)
            written: Any = Uncached(out)
            http_get(url, written, resume_size=came, headers=headers, expected_size=file.size, tqdm_class=bar)
            out.flush()
            if came and _sha256(part) != file.sha256:
                part.unlink()
                raise HostError(
                    f"{file.path} of {listed.repo} came damaged and was thrown away.",
                    code="weights_damaged",
                    hint="Call the same command again: that file is fetched anew.",
                )
            settle(part)
            part.rename(blob)

    def _huge(self, listed: Listed, file: HubFile, meter: DownloadMeter) -> None:
        """By the library alone, which does not resume; counted once it is here."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # re-exported there

        try:
            with as_host_error(listed.repo, listed.revision), disable_progress_bars():
                came = hf_hub_download(
                    listed.repo,
                    file.path,
                    revision=listed.commit,
                    cache_dir=self._home / "hub",
                    endpoint=self._endpoint,
                    library_name="sparkdash",
                    library_version=__version__,
                )
                settle(Path(came))
        except ValueError:  # the library's refusal of plain HTTP for such a file
            raise HostError(
                f"{file.path} of {listed.repo} is {gib(file.size)}, which the hub gives through xet only.",
                code="xet_missing",
                hint="Install hf_xet beside sparkdash, and unset HF_HUB_DISABLE_XET.",
            ) from None
        meter.add(file.missing, file.missing)

    def _lay_out(self, listed: Listed) -> None:
        """The small files, the snapshot's links, and what the revision means, by the library."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # as above

        with as_host_error(listed.repo, listed.revision), disable_progress_bars():
            snapshot_download(
                listed.repo,
                revision=listed.revision,
                cache_dir=self._home / "hub",
                endpoint=self._endpoint,
                library_name="sparkdash",
                library_version=__version__,
                allow_patterns=[glob.escape(file.path) for file in listed.files],
                max_workers=AT_ONCE,
            )

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import logging

        logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # rule 4
        return HfApi(endpoint=self._endpoint, library_name="sparkdash", library_version=__version__)


def wanted_files(names: Iterable[str], quant: str | None = None) -> list[str]:
    """Those of a repository's files that an engine reads, sorted. Pure.

    Where safetensors lie at the root, weights in other formats and in subfolders (`original/`, `metal/`, `onnx/`) are
    for other programs: openai/gpt-oss-120b is three times as big with them. With `quant`, of all weights only the GGUF
    files of that quantisation.
    """
    every = sorted(names)
    if quant is not None:
        return [name for name in every if not is_weights(name) or is_quant(name, quant)]
    tensors = {name for name in every if "/" not in name and name.endswith(".safetensors")}
    return [name for name in every if not tensors or name in tensors or not is_weights(name)]


@contextmanager
def _locked(part: Path, repo: str) -> Iterator[Any]:
    """The file that a download grows in, held against other programs; the lock goes with the process."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(
                f"Another program fetches {repo} already.",
                code="weights_busy",
                hint="Wait for it, or end it and call again: nothing is fetched twice.",
            ) from None
        yield out


def _part(blob: Path) -> Path:
    return blob.with_name(f"{blob.name}.incomplete")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    for piece in pieces(path):
        found.update(piece)
    return found.hexdigest()


def _free(folder: Path) -> int:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free
