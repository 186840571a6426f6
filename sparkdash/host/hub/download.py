"""Download of weights from the Hugging Face hub into the owner's cache, through huggingface_hub.

Owns: which files of a repository an engine reads, how much of them is missing, whether that fits on the disk, and the
download. Must not know: profiles, terminals, containers. The first call loads the library, never an import.

Rule 1: received bytes are kept. The library (2.x) fetches a file under a new name each time and removes it after an
        interruption. So large files are fetched here, through the library's own `http_get`, to `blobs/HASH.incomplete`,
        and a later call resumes them. The library then lays out the snapshot, and writes the revision last.
Rule 2: a resumed file is hashed before it counts, as the origin of its beginning is unknown.
Rule 3: fetched or hashed bytes leave the page cache again, which tens of GB would fill.
Rule 4: no message of the library reaches a person, as its messages contain signed addresses.
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
from sparkdash.host.files.uncached import Uncached, flush_uncached, read_uncached
from sparkdash.host.hub.failures import as_host_error
from sparkdash.host.hub.local_weights import is_quant, is_weights, repository_folder, split_repository
from sparkdash.host.hub.meter import DownloadMeter, WeightsProgress
from sparkdash.host.thread import in_thread
from sparkdash.units import size

if TYPE_CHECKING:
    from huggingface_hub import HfApi

AT_ONCE = 4
"""Parallel downloads: one connection to the hub's storage does not fill a fast line."""
TICK_S = 0.25
"""Interval of progress reports."""
OVER_HTTP = 50 * 10**9
"""Largest file in bytes that the hub serves over HTTP; larger ones come through xet, by the library."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """File of a repository that an engine reads."""

    path: str
    size: int
    sha256: str | None
    """Digest of the content, for large files only; the cache names them by it."""
    missing: int
    """Bytes still to fetch."""


@dataclass(frozen=True, slots=True)
class ListedRepository:
    """Repository at one commit, with the files that an engine reads."""

    repo: str
    revision: str
    commit: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Total bytes."""
        return sum(file.size for file in self.files)

    @property
    def missing(self) -> int:
        """Bytes still to fetch."""
        return sum(file.missing for file in self.files)


Plan = tuple[ListedRepository, ...]


class Hub:
    """Hub and one owner's cache. `endpoint` None means the hub's usual address; `free(folder)` returns free bytes."""

    def __init__(
        self, hf_home: Path, *, endpoint: str | None = None, free: Callable[[Path], int] | None = None
    ) -> None:
        self._home = hf_home
        self._endpoint = endpoint
        self._free = free or _free

    async def plan(self, refs: Iterable[ModelRef]) -> Plan:
        """List the hub's files of these repositories and the bytes that are missing here; local paths are skipped.

        Raises:
            HostError: hub_unreachable, weights_unknown (no such repository or revision), weights_gated, token_refused.
        """
        asked = dict.fromkeys((*split_repository(ref.hf), ref.revision or "main") for ref in refs if ref.hf)
        return tuple([await in_thread(functools.partial(self._list, *one)) for one in asked])

    def check_space(self, plan: Plan) -> None:
        """Raise HostError(code="disk_full") if the missing files do not fit on the cache's disk."""
        needs, free = sum(one.missing for one in plan), self._free(self._home)
        if needs > free:
            raise HostError(
                f"{size(needs)} of weights are missing, but the disk of {self._home} has only {size(free)} free.",
                code="disk_full",
                hint=f"Free {size(needs - free)} there, or move the cache with `hf_home` in config.toml.",
            )

    async def fetch(self, plan: Plan) -> AsyncGenerator[WeightsProgress, None]:
        """Fetch the missing files and report progress; the last report has `done`. Closing the generator stops it.

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

        async def blob(listed: ListedRepository, file: HubFile) -> None:
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

    def _list(self, repo: str, quant: str | None, revision: str) -> ListedRepository:
        from huggingface_hub.hf_api import RepoFile

        with as_host_error(repo, revision):
            api = self._api()
            commit = api.model_info(repo, revision=revision).sha or revision
            tree = api.list_repo_tree(repo, recursive=True, revision=commit)
            found = {file.path: file for file in tree if isinstance(file, RepoFile)}
        files = tuple(self._file(repo, commit, found[name]) for name in wanted_files(found, quant))
        return ListedRepository(repo, revision, commit, files)

    def _file(self, repo: str, commit: str, told: Any) -> HubFile:
        place = repository_folder(self._home, repo)
        sha256 = told.lfs.sha256 if told.lfs else None
        blob = place / "blobs" / (sha256 or told.blob_id)
        if blob.exists() or (place / "snapshots" / commit / told.path).exists():
            return HubFile(told.path, told.size, sha256, 0)
        came = _size(_part(blob)) if sha256 else 0
        return HubFile(told.path, told.size, sha256, told.size - came if came <= told.size else told.size)

    def _blob(self, listed: ListedRepository, file: HubFile, meter: DownloadMeter) -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # re-exported there

        blob = repository_folder(self._home, listed.repo) / "blobs" / str(file.sha256)
        part, url = _part(blob), hf_hub_url(listed.repo, file.path, revision=listed.commit, endpoint=self._endpoint)
        headers = build_hf_headers(library_name="sparkdash", library_version=__version__)
        bar: Any = functools.partial(meter.bar, file.size - file.missing)
        with as_host_error(listed.repo, listed.revision), _locked(part, listed.repo) as out:
            if blob.exists():  # another program was faster
                part.unlink(missing_ok=True)
                return
            came = out.tell() if out.tell() <= file.size else out.truncate(0)
            written: Any = Uncached(out)
            http_get(url, written, resume_size=came, headers=headers, expected_size=file.size, tqdm_class=bar)
            out.flush()
            if came and _sha256(part) != file.sha256:
                part.unlink()
                raise HostError(
                    f"{file.path} of {listed.repo} arrived damaged and was deleted.",
                    code="weights_damaged",
                    hint="Run the same command again: it fetches that file anew.",
                )
            flush_uncached(part)
            part.rename(blob)

    def _huge(self, listed: ListedRepository, file: HubFile, meter: DownloadMeter) -> None:
        """Fetch by the library alone, which does not resume; counted once it is complete."""
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
                flush_uncached(Path(came))
        except ValueError:  # the library's refusal of plain HTTP for such a file
            raise HostError(
                f"{file.path} of {listed.repo} is {size(file.size)}, which the hub serves through xet only.",
                code="xet_missing",
                hint="Install hf_xet beside sparkdash, and unset HF_HUB_DISABLE_XET.",
            ) from None
        meter.add(file.missing, file.missing)

    def _lay_out(self, listed: ListedRepository) -> None:
        """Fetch the small files, and write the snapshot's links and the revision, by the library."""
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
    """Choose the files of a repository that an engine reads, sorted.

    With safetensors at the root, weights in other formats and in subfolders (`original/`, `metal/`, `onnx/`) are for
    other programs: openai/gpt-oss-120b is three times as large with them. With `quant`, the only weights are the GGUF
    files of that quantisation.
    """
    every = sorted(names)
    if quant is not None:
        return [name for name in every if not is_weights(name) or is_quant(name, quant)]
    if not any(map(_is_root_tensors, every)):
        return every
    return [name for name in every if not is_weights(name) or _is_root_tensors(name)]


def _is_root_tensors(name: str) -> bool:
    return "/" not in name and name.endswith(".safetensors")


@contextmanager
def _locked(part: Path, repo: str) -> Iterator[Any]:
    """Open the growing file of a download, locked against other programs until the process ends."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(
                f"Another program is already fetching {repo}.",
                code="weights_busy",
                hint="Wait for it, or end it and run this again: nothing is fetched twice.",
            ) from None
        yield out


def _part(blob: Path) -> Path:
    return blob.with_name(f"{blob.name}.incomplete")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    for piece in read_uncached(path):
        found.update(piece)
    return found.hexdigest()


def _free(folder: Path) -> int:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free
