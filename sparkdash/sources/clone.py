"""Bare clones of profile sources: fetched on request, read at a commit, never checked out; nothing in them runs."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sparkdash import paths
from sparkdash.errors import HostError, ProfileError
from sparkdash.redaction import masked
from sparkdash.sources import collection
from sparkdash.sources.collection import Entry
from sparkdash.sources.source import Source

FETCH_S = 600.0
"""Longest fetch in seconds."""
READ_S = 60.0
MAX_FILE_BYTES = 1_000_000
"""Larger files are no recipes and are not read."""
_FETCHED = "refs/sparkdash/fetched"
_KEPT = "refs/sparkdash/kept"
_SAFE = (
    "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
    "-c", "protocol.ext.allow=never", "-c", "fetch.recurseSubmodules=no", "-c", "core.fsmonitor=false",
)  # fmt: skip
_FATAL = ("fatal: ", "error: ")
_PERCENT = re.compile(r"^(?:remote: )?([A-Z][\w ]+): +(\d+)%")


@dataclass(frozen=True, slots=True)
class TreeFile:
    """Regular file of a commit."""

    path: str
    blob: str
    size: int


class Clone:
    """Bare clone of one source in the cache folder."""

    def __init__(self, name: str) -> None:
        self._folder = paths.sources_dir() / f"{name}.git"

    def fetch(self, url: str, ref: str | None, report: Callable[[str], None]) -> str:
        """Fetch the newest commit of `ref` (None: the default branch), without history; return the commit.

        `report` gets git's progress, as "Receiving objects 43 %".

        Raises:
            HostError: git_missing, source_unreachable, cache_not_written.
        """
        self._prepare()
        argv = ["fetch", "--depth", "1", "--no-tags", "--progress", "--force", "--end-of-options", url]
        self._watch([*argv, f"{ref or 'HEAD'}:{_FETCHED}"], url, report)
        commit = self._git(["rev-parse", "--verify", f"{_FETCHED}^{{commit}}"]).decode().strip()
        self._git(["update-ref", f"{_KEPT}/{commit}", commit])
        return commit

    def has(self, commit: str) -> bool:
        if not self._folder.is_dir():
            return False
        return self._run(["cat-file", "-e", f"{commit}^{{commit}}"]).returncode == 0

    def files(self, commit: str) -> list[TreeFile]:
        """Return the regular files of a commit; symbolic links and submodules are left out. Raises HostError."""
        listed = self._git(["ls-tree", "-r", "-z", "--long", "--full-tree", commit])
        found = []
        for row in listed.split(b"\0"):
            if not row:
                continue
            facts, _, path = row.partition(b"\t")
            mode, kind, blob, size = facts.split()
            if kind == b"blob" and mode in (b"100644", b"100755"):
                found.append(TreeFile(path.decode("utf-8", "replace"), blob.decode(), int(size)))
        return found

    def texts(self, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, str]]:
        """Yield the files that are UTF-8 text of at most MAX_FILE_BYTES, each with its text. Raises HostError."""
        wanted = [file for file in files if file.size <= MAX_FILE_BYTES]
        if not wanted:
            return
        data = self._git(["cat-file", "--batch"], entered="".join(f"{file.blob}\n" for file in wanted).encode())
        at = 0
        for file in wanted:
            start = data.index(b"\n", at) + 1
            content = data[start : start + file.size]
            at = start + file.size + 1
            try:
                yield file, content.decode("utf-8")
            except UnicodeDecodeError:
                continue

    def remove(self) -> None:
        try:
            shutil.rmtree(self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _not_written(error) from None

    def _prepare(self) -> None:
        if (self._folder / "HEAD").is_file():
            return
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _not_written(error) from None
        made = self._run(["init", "--bare", "--quiet", str(self._folder)], inside=False)
        if made.returncode:
            raise HostError(f"{self._folder} cannot be made: {_last_line(made.stderr)}.", code="cache_not_written")

    def _watch(self, words: list[str], url: str, report: Callable[[str], None]) -> None:
        """Run git and report its progress lines, which end in a carriage return."""
        with self._begin(words) as child:
            assert child.stderr is not None  # noqa: S101 - a pipe, made by `_begin`
            said = ""
            try:
                for line in _progress_lines(child.stderr.fileno()):
                    if shown := _PERCENT.match(line):
                        report(f"{shown[1]} {shown[2]} %")
                    elif line.strip() and not said.startswith(_FATAL):  # what follows is advice
                        said = line
                code = child.wait()
            finally:
                if child.poll() is None:  # `timeout` passes no SIGKILL on, and git has helpers of its own
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
        if code:
            raise HostError(
                f"{masked(url)} cannot be fetched: {_reason(said) or f'git ended with {code}'}.",
                code="source_unreachable",
                hint="Check the address and the network. What was fetched before can still be read.",
            )

    def _begin(self, words: list[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                ["timeout", "--kill-after=5", str(FETCH_S), "git",  # noqa: S607 - the owner's own git
                  *_SAFE, "-C", str(self._folder), *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment(),
                start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise _no_git() from None

    def _git(self, words: list[str], entered: bytes | None = None) -> bytes:
        done = self._run(words, entered)
        if done.returncode:
            raise HostError(
                f"The clone in {self._folder} cannot be read: {_last_line(done.stderr)}.",
                code="clone_unreadable",
                hint="`sparkdash profiles sources update` fetches it again; the folder may be deleted.",
            )
        return done.stdout

    def _run(
        self, words: list[str], entered: bytes | None = None, *, inside: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        where = ["-C", str(self._folder)] if inside else []
        try:
            return subprocess.run(
                ["git", *_SAFE, *where, *words],  # noqa: S607 - the owner's own git
                input=entered or b"", capture_output=True, timeout=READ_S, env=_environment(), check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise _no_git() from None
        except subprocess.TimeoutExpired:
            raise HostError(f"git took longer than {READ_S:.0f} s.", code="clone_unreadable") from None


def pinned_clone(source: Source) -> Clone:
    """Return the clone of a source, fetched again if its pinned commit is not in the cache. Raises HostError."""
    clone = Clone(source.name)
    if not clone.has(source.commit):
        clone.fetch(source.url, source.commit, lambda _: None)
    return clone


def _environment() -> dict[str, str]:
    """Return an environment in which git and ssh never ask a question, and follow no repository of the caller's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    ssh = os.environ.get("GIT_SSH_COMMAND", "ssh") + " -o BatchMode=yes -o ConnectTimeout=20"
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_SSH_COMMAND": ssh, "LC_ALL": "C"}


def _progress_lines(descriptor: int) -> Iterator[str]:
    rest = b""
    while piece := os.read(descriptor, 65536):
        *lines, rest = re.split(rb"[\r\n]", rest + piece)
        for line in lines:
            yield line.decode("utf-8", "replace")
    yield rest.decode("utf-8", "replace")


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return masked(lines[-1]).rstrip(".") if lines else "no reason given"


def _reason(line: str) -> str:
    return masked(line.removeprefix("fatal: ").removeprefix("error: ")).rstrip(".")


def _no_git() -> HostError:
    return HostError("git is not installed.", code="git_missing", hint="Install it: `sudo apt install git`.")


def _not_written(error: OSError) -> HostError:
    return HostError(f"{error.filename} cannot be written: {error.strerror}.", code="cache_not_written")


MOST_FILES = 5000
"""Recipes that are read of one source."""


@dataclass(frozen=True, slots=True)
class Change:
    """Recipe that differs between two commits."""

    kind: str
    """added, removed or changed."""
    path: str
    diff: tuple[str, ...]
    """Lines of a unified diff; () unless changed."""


def entries(source: Source) -> list[Entry]:
    """Return the recipes and profiles of a source, in natural order. Raises HostError."""
    return collection.read_entries(source.name, _recipe_texts(pinned_clone(source), source.commit))


def entry_text(source: Source, name: str) -> tuple[Entry, str]:
    """Return an entry and its text.

    `name`: its short name, or its path in the repository.

    Raises:
        ProfileError: entry_unknown, with the nearest names.
        HostError: the clone cannot be read or fetched.
    """
    texts = _recipe_texts(pinned_clone(source), source.commit)
    known = collection.read_entries(source.name, texts)
    for entry in known:
        if name in (entry.name, entry.path):
            return entry, texts[entry.path]
    near = difflib.get_close_matches(name, [entry.name for entry in known], 3, 0.5)
    raise ProfileError(
        f"{source.name} has no recipe {name!r} at {source.short_commit}.",
        code="entry_unknown",
        hint=f"Nearest: {', '.join(near)}." if near else f"`sparkdash profiles search {source.name}` lists them.",
    )


def changes(clone: Clone, before: str, after: str) -> list[Change]:
    """Return the recipes that differ between two commits of a clone, by path. Raises HostError."""
    old, new = _recipe_texts(clone, before), _recipe_texts(clone, after)
    found = []
    for path in sorted({*old, *new}):
        if path not in old:
            found.append(Change("added", path, ()))
        elif path not in new:
            found.append(Change("removed", path, ()))
        elif old[path] != new[path]:
            found.append(Change("changed", path, tuple(diff_lines(old[path], new[path]))))
    return found


def diff_lines(before: str, after: str) -> Sequence[str]:
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]


def count_recipes(clone: Clone, commit: str) -> int:
    return len(collection.read_entries("", _recipe_texts(clone, commit)))


def _recipe_texts(clone: Clone, commit: str) -> dict[str, str]:
    files = {file.path: file for file in clone.files(commit)}
    manifest = _text(clone, files.get(collection.MANIFEST))
    paths = collection.candidate_paths(files, collection.recipe_folders(manifest))
    return {file.path: text for file, text in clone.texts([files[path] for path in paths[:MOST_FILES]])}


def _text(clone: Clone, file: TreeFile | None) -> str | None:
    return next((text for _, text in clone.texts([file])), None) if file else None
