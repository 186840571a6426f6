"""Download of weights from the Hugging Face hub into the owner's cache, through huggingface_hub.

The first call loads the library, never an import.

Rule 1: received bytes are kept. The library (2.x) fetches a file under a new name each time and removes it after an
        interruption. So large files are fetched here, through the library's own `http_get`, to `blobs/HASH.incomplete`,
        and a later call resumes them. The library then lays out the snapshot, and writes the revision last.
Rule 2: a resumed file is hashed before it counts, as the origin of its beginning is unknown.
Rule 3: fetched or hashed bytes leave the page cache again, which tens of GB would fill.
Rule 4: no message of the library reaches a person, as its messages contain signed addresses.
"""

import asyncio
import errno
import fcntl
import functools
import glob
import hashlib
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sparkdash import __version__, redaction
from sparkdash.catalog.checkpoint import safetensors, weights
from sparkdash.catalog.checkpoint.on_disk import repository_folder
from sparkdash.catalog.checkpoint.safetensors import Tensor
from sparkdash.domain.profile import ModelRef
from sparkdash.domain.weights import WeightFacts
from sparkdash.errors import HostError
from sparkdash.host.local_weights import is_quant, is_weights, split_repository
from sparkdash.host.memory.page_cache import Uncached, flush_uncached, read_uncached
from sparkdash.host.thread import in_thread
from sparkdash.units import size

if TYPE_CHECKING:
    from huggingface_hub import HfApi


WINDOW_S = 10.0
"""Window of the rate, as the library counts in pieces of 10 MB."""


@dataclass(frozen=True, slots=True)
class WeightsProgress:
    """Progress report. Bytes include what was here before; the rate counts only what arrives now."""

    came_bytes: int
    total_bytes: int
    bytes_per_s: float | None = None
    """Rate over the last WINDOW_S; None before the first bytes."""
    eta_s: float | None = None
    """Missing bytes divided by the rate."""
    done: bool = False


class Stopped(Exception):  # noqa: N818 - no error: ends a thread that is no longer needed
    """Raised in a downloading thread after `DownloadMeter.stop`."""


class DownloadMeter:
    """Counts the bytes of a download: `total`, of which `missing` are to come. Safe to use from many threads."""

    def __init__(self, total: int, missing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._came = total - missing
        self._received = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._marks = deque([(clock(), 0)])
        """(time, bytes received until then), from the last one before the window on."""

    def stop(self) -> None:
        """Make every bar raise Stopped from now on."""
        self._over.set()

    def bar(self, counted: int, **facts: Any) -> "DownloadBar":
        """Make a progress bar for the library; `counted` bytes of the file are already included."""
        self.add(0, int(facts.get("initial") or 0) - counted)  # differs if the server does not resume
        return DownloadBar(self)

    def add(self, received: int, came: int) -> None:
        """Count received bytes, and the growth of the files by `came`. Raises Stopped."""
        with self._lock:
            now = self._clock()
            self._came += came
            self._received += received
            self._marks.append((now, self._received))
            while len(self._marks) > 2 and self._marks[1][0] <= now - WINDOW_S:
                self._marks.popleft()
        if self._over.is_set():
            raise Stopped

    def now(self) -> WeightsProgress:
        with self._lock:
            since, before = self._marks[0]
            seconds, received = self._clock() - since, self._received - before
            came = min(self._came, self._total)
        rate = received / seconds if received > 0 and seconds > 0 else None
        return WeightsProgress(came, self._total, rate, (self._total - came) / rate if rate else None)

    def end(self) -> WeightsProgress:
        return WeightsProgress(self._total, self._total, done=True)


class DownloadBar:
    """The part of tqdm's interface that the library's download uses."""

    def __init__(self, meter: DownloadMeter) -> None:
        self._meter = meter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, as no bar is drawn."""

    def update(self, count: float | None = 1) -> None:
        """Count more bytes; negative after the library has restarted a file."""
        grown = int(count or 0)
        self._meter.add(max(0, grown), grown)


KEPT = "The fetched part is kept: the same command resumes it."
_LOGIN = "log in with `hf auth login` or set HF_TOKEN"


def hub_url() -> str | None:
    """Return the hub's address by HF_ENDPOINT; None for the usual one. Raises HostError `hub_url_invalid`."""
    url = os.environ.get("HF_ENDPOINT") or None
    if url is not None and not (redaction.is_server(url) and url.isascii()):
        raise HostError(
            f"HF_ENDPOINT is {redaction.shown_url(url)!r}, which is not a URL of a hub.",
            code="hub_url_invalid",
            hint="Use a form like https://huggingface.co, or unset it for that address.",
        )
    return url


@contextmanager
def as_host_error(repo: str, revision: str) -> Iterator[None]:
    """Turn errors of huggingface_hub, which is loaded anyway, into HostErrors; others pass."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    network: Any = HfHubHTTPError.__mro__[1]  # the base of every error of the HTTP client that this library uses
    try:
        yield
    except HfHubHTTPError as error:
        raise _refused(error, repo, revision) from None
    except network as error:
        raise _unreachable(type(error).__name__) from None
    except OSError as error:
        raise _on_disk(error, repo) from None
    except HFValidationError:
        raise HostError(
            f"{repo!r} cannot be the name of a model on the hub.",
            code="weights_unknown",
            hint="Correct `hf` in the profile: its form is owner/name.",
        ) from None


def _refused(error: Any, repo: str, revision: str) -> HostError:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return HostError(
            f"{repo} is gated, and you may not read it yet.",
            code="weights_gated",
            hint=f"Accept its terms on its page on the hub, then {_LOGIN}.",
        )
    if isinstance(error, RevisionNotFoundError):
        return HostError(
            f"{repo} has no revision {revision}.", code="weights_unknown", hint="Correct `revision` in the profile."
        )
    if isinstance(error, RepositoryNotFoundError):
        return HostError(
            f"The hub has no model {repo}, or does not show it to you.",
            code="weights_unknown",
            hint=f"Correct `hf` in the profile; if the model is private, {_LOGIN}.",
        )
    if status in (401, 403):
        return HostError(
            f"The hub serves {repo} only with a valid token ({status}).",
            code="token_refused",
            hint=f"Make a new token on the hub, then {_LOGIN}.",
        )
    return HostError(f"The hub answered {status} for {repo}.", code="hub_unreachable", hint=f"Try later. {KEPT}")


def _unreachable(what: str) -> HostError:
    return HostError(
        f"The hub cannot be reached ({what}).",
        code="hub_unreachable",
        hint=f"Check this box's network; `--offline` lists what is missing. {KEPT}",
    )


def _on_disk(error: OSError, repo: str) -> HostError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HostError(
            f"The disk filled up while fetching {repo}.", code="disk_full", hint=f"Free some of it. {KEPT}"
        )
    if error.errno is not None:
        return HostError(
            f"{error.filename or 'The cache'} cannot be written: {error.strerror}.",
            code="cache_unusable",
            hint="Take ownership of the folder, or move the cache with `hf_home` in config.toml.",
        )
    return _unreachable("it stopped answering")  # the library raises a plain OSError after its retries


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
        return sum(file.size for file in self.files)

    @property
    def missing(self) -> int:
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

    def _api(self) -> "HfApi":
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


HEADERS_AT_ONCE = 8
"""Parallel requests for headers: large models have a hundred files."""
TIMEOUT_S = 20.0
"""Longest silence of a request."""
HINTS = {
    "weights_unknown": "Write owner/name as on its page on the hub; a private one needs `hf auth login` or HF_TOKEN.",
    "hub_unreachable": "Check this box's network, or give a folder that holds the model.",
}
"""Hints in place of those for a download."""


def read_weight_headers(repository: str, revision: str = "main", endpoint: str | None = None) -> WeightFacts:
    """Read the facts of `owner/name`. Loads the hub's library; takes seconds, longer for a large model.

    Raises:
        HostError: the hub cannot be reached, has no such model, or refuses it.
        ProfileError: `weights_unreadable`: the model has no safetensors, or a malformed header.
    """
    try:
        with as_host_error(repository, revision):
            return _read(repository, revision, endpoint)
    except HostError as error:
        error.hint = HINTS.get(error.code, error.hint)
        raise


def _read(repository: str, revision: str, endpoint: str | None) -> WeightFacts:
    from huggingface_hub import HfApi

    hub = _Repository(HfApi(endpoint=endpoint, library_name="sparkdash"), repository, revision)
    config = hub.json(weights.CONFIG)
    if config is None:
        raise safetensors.unreadable_weights(
            f"{repository} has no {weights.CONFIG}", "A GGUF model can be read once it is on this box."
        )
    sidecar, index = hub.json(weights.SIDECAR), hub.json(safetensors.INDEX)
    whole = ["model.safetensors"]
    files = whole if index is None else safetensors.index_files(index, f"{safetensors.INDEX} of {repository}")
    with ThreadPoolExecutor(HEADERS_AT_ONCE, thread_name_prefix="headers") as pool:
        found = [tensor for tensors in pool.map(hub.tensors, files) for tensor in tensors]
    return weights.assemble_weight_facts(repository, config, sidecar or {}, found)


class _Repository:
    """Model on the hub at one revision."""

    def __init__(self, api: "HfApi", name: str, revision: str) -> None:
        self.api, self.name, self.revision = api, name, revision

    def json(self, file: str) -> dict[str, Any] | None:
        """Fetch a small file of JSON; None without such a file."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.errors import EntryNotFoundError
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

        url = hf_hub_url(self.name, file, revision=self.revision, endpoint=self.api.endpoint)
        answer = get_session().get(url, headers=build_hf_headers(library_name="sparkdash"), timeout=TIMEOUT_S)
        try:
            hf_raise_for_status(answer)
        except EntryNotFoundError:
            return None
        return safetensors.parse_json_object(answer.content, f"{file} of {self.name}")

    def tensors(self, file: str) -> list[Tensor]:
        from huggingface_hub.errors import EntryNotFoundError, SafetensorsParsingError

        try:
            header = self.api.parse_safetensors_file_metadata(
                self.name, file, revision=self.revision, timeout=TIMEOUT_S
            )
        except EntryNotFoundError:
            raise safetensors.unreadable_weights(f"{self.name} has no {file}") from None
        except SafetensorsParsingError:
            raise safetensors.unreadable_weights(f"{file} of {self.name} has a malformed header") from None
        return [
            Tensor(name, info.dtype, tuple(info.shape), max(0, info.data_offsets[1] - info.data_offsets[0]))
            for name, info in header.tensors.items()
        ]
