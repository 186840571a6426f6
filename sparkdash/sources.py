"""Profile sources: git collections of recipes and profiles, read at a pinned commit.

Nothing in a clone is checked out or run: files are read out of the object database.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, ValidationError

from sparkdash import paths
from sparkdash.catalog.importers.values import parse_bounded_yaml
from sparkdash.domain.base import Frozen
from sparkdash.errors import HostError, ProfileError
from sparkdash.paths import lock_file, replace_file
from sparkdash.redaction import masked
from sparkdash.settings import parse_toml
from sparkdash.units import natural

SOURCE_NAME = r"^[a-z0-9][a-z0-9.-]{0,39}$"
_SCP = re.compile(r"^(?:[\w.-]+@)?[\w.-]+:(?!//)[^\s]+$")

WELL_KNOWN = {
    "spark-arena": "https://github.com/spark-arena/recipe-registry",
    "eugr": "https://github.com/eugr/spark-vllm-docker",
    "mfellner": "https://github.com/mfellner/sparkrun-recipes",
}
"""Public collections for one or several Sparks that can be added by name."""


class Source(Frozen):
    """Collection that profiles can be added from."""

    name: Annotated[str, Field(pattern=SOURCE_NAME)]
    url: str
    ref: str | None = None
    """Branch, tag or commit that updates follow; None: the default branch."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
    """Commit that everything is read from until an update is accepted."""
    updated_at: str
    """Day of the last accepted update, as 2026-11-23."""

    @property
    def short_commit(self) -> str:
        return self.commit[:10]


def source_url(given: str) -> str:
    """Return the git address that `given` means: a well-known name, an address, or a folder. Raises ProfileError."""
    if given in WELL_KNOWN:
        return WELL_KNOWN[given]
    if given.startswith("/") or (_SCP.match(given) and "://" not in given):
        return given
    parts = urlsplit(given)
    if parts.scheme not in ("https", "http", "ssh", "git", "file") or not (parts.netloc or parts.scheme == "file"):
        raise source_refused(
            f"{given!r} is not the address of a git repository.",
            f"Give https://…, USER@HOST:PATH, an absolute path, or one of {', '.join(WELL_KNOWN)}.",
        )
    if _has_secret(parts):
        raise source_refused(
            "The address holds a password or token, which would be kept in a file.",
            "Leave it out, and let git's credential helper or an ssh key log in.",
        )
    return given


def _has_secret(parts: SplitResult) -> bool:
    """Whether the address holds a password or token; the user of an ssh address is none."""
    return bool(parts.password or (parts.username and parts.scheme.startswith("http")))


def default_name(given: str) -> str:
    """Return a name for the collection: the well-known name, else the repository's owner or own name."""
    if given in WELL_KNOWN:
        return given
    for name, url in WELL_KNOWN.items():
        if given.removesuffix("/").removesuffix(".git") == url:
            return name
    words = [word for word in re.split(r"[/:]", given.removesuffix("/").removesuffix(".git")) if word]
    local = given.startswith(("/", "file:"))
    chosen = words[-1] if local or len(words) < 2 else words[-2]
    return re.sub(r"[^a-z0-9.-]+", "-", chosen.lower()).strip("-.")[:40] or "source"


def source_refused(message: str, hint: str | None = None) -> ProfileError:
    return ProfileError(message, code="source_refused", hint=hint)


FILE_NAME = "sources.toml"
_HEAD = "# Collections that profiles can be added from. `sparkdash profiles sources` writes this file.\n"


def sources_file() -> Path:
    return paths.config_dir() / FILE_NAME


def read_sources() -> tuple[Source, ...]:
    path = sources_file()
    try:
        tables = parse_toml(paths.read_small_text(path))
        return tuple(Source.model_validate({**table, "name": name}) for name, table in tables.items())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _invalid(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    except (ValueError, TypeError) as error:  # TOML, UTF-8, or a value where a table belongs
        raise _invalid(f"{path}: {error}.") from None


def find_source(name: str) -> Source:
    known = read_sources()
    for source in known:
        if source.name == name:
            return source
    raise ProfileError(
        f"There is no source {name!r}.",
        code="source_unknown",
        hint=f"Known: {', '.join(source.name for source in known)}."
        if known
        else "`sparkdash profiles sources add NAME_OR_URL` adds one.",
    )


def put_source(source: Source) -> None:
    def with_it(known: Sequence[Source]) -> Sequence[Source]:
        kept = [source if one.name == source.name else one for one in known]
        return kept if source in kept else [*kept, source]

    _change(with_it)


def remove_source(name: str) -> None:
    find_source(name)
    _change(lambda known: [source for source in known if source.name != name])


def _change(to: Callable[[Sequence[Source]], Sequence[Source]]) -> None:
    path = sources_file()
    try:
        with lock_file(path):
            replace_file(path, "\n".join([_HEAD, *map(_table, to(read_sources()))]).encode())
    except OSError as error:
        raise source_refused(f"{path} cannot be written: {error.strerror}.") from None


def _table(source: Source) -> str:
    values = source.model_dump(exclude={"name"}, exclude_none=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]  # a JSON string is a TOML string
    return "\n".join([f"[{json.dumps(source.name)}]", *lines, ""])


def _invalid(what: str) -> ProfileError:
    return ProfileError(what, code="sources_invalid", hint="Correct it, or move it away and add the sources again.")


MANIFEST = ".sparkrun/registry.yaml"
"""File in which a collection for sparkrun names its folders of recipes."""
SUFFIXES = (".yaml", ".yml")
_OWN = re.compile(r"^profile\s*:", re.MULTILINE)
_RECIPE = re.compile(r"^(?:sparkrun_version|recipe_version|runtime|container|defaults)\s*:", re.MULTILINE)
_RUNS = re.compile(r"^(?:command|model)\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """Recipe or profile of a source."""

    source: str
    name: str
    """Short name, unique in its source: `sparkdash profiles add SOURCE/NAME`."""
    path: str
    model: str | None = None
    about: str | None = None
    nodes: int | None = None
    own: bool = False
    """Whether it is a profile of sparkdash, which needs no conversion."""

    @property
    def address(self) -> str:
        return f"{self.source}/{self.name}"


def recipe_folders(manifest: str | None) -> tuple[str, ...]:
    """Return the folders that a collection's manifest names; () where it names none."""
    if manifest is None:
        return ()
    try:
        listed = parse_bounded_yaml(manifest).get("registries")
    except ProfileError:
        return ()
    folders = [one.get("recipes") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return tuple(folder.strip("/") + "/" for folder in folders if isinstance(folder, str) and folder.strip("/"))


def candidate_paths(paths: Iterable[str], folders: Sequence[str]) -> list[str]:
    """Return the YAML files that may be recipes: those in `folders`, or without folders all that are not hidden.

    A path with a line's end or another control character is left out: no command line could name it.
    """
    return [
        path
        for path in paths
        if PurePosixPath(path).suffix in SUFFIXES
        and path.isprintable()
        and not any(part.startswith(".") for part in PurePosixPath(path).parts)
        and (not folders or path.startswith(tuple(folders)))
    ]


def read_entries(source: str, texts: Mapping[str, str]) -> list[Entry]:
    found = {
        path: text for path, text in texts.items() if _OWN.search(text) or (_RECIPE.search(text) and _RUNS.search(text))
    }
    names = short_names(found)
    entries = [_entry(source, names[path], path, text) for path, text in found.items()]
    return sorted(entries, key=lambda entry: natural(entry.name))


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return a name for each path: its stem, with as many folders before it as make it unique."""
    parts = {path: PurePosixPath(path).with_suffix("").parts for path in paths}
    ends = Counter(each[-count:] for each in parts.values() for count in range(1, len(each) + 1))
    return {path: "/".join(_unique_end(each, ends)) for path, each in parts.items()}


def _unique_end(parts: tuple[str, ...], ends: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    return next((parts[-count:] for count in range(1, len(parts) + 1) if ends[parts[-count:]] == 1), parts)


def matching(entries: Iterable[Entry], words: Sequence[str]) -> list[Entry]:
    """Return the entries whose name, model, path or description holds every word, whatever its case."""
    wanted = [word.casefold() for word in words]
    return [
        entry
        for entry in entries
        if all(word in f"{entry.address} {entry.path} {entry.model} {entry.about}".casefold() for word in wanted)
    ]


def _entry(source: str, name: str, path: str, text: str) -> Entry:
    try:
        found = parse_bounded_yaml(text)
    except ProfileError:
        return Entry(source, name, path)
    if "profile" in found:
        return Entry(
            source, name, path, _own_model(found), _words(found.get("about")), _nodes(found.get("nodes")), True
        )
    metadata = found.get("metadata")
    about = found.get("description") or (metadata.get("description") if isinstance(metadata, dict) else None)
    nodes = _nodes(found.get("min_nodes"))
    if nodes is None:
        nodes = 1 if found.get("solo_only") is True else 2 if found.get("cluster_only") is True else None
    return Entry(source, name, path, _words(found.get("model")), _words(about), nodes)


def _own_model(profile: Mapping[str, Any]) -> str | None:
    models = profile.get("models")
    target = models.get("target") if isinstance(models, dict) else None
    return _words(target.get("hf")) if isinstance(target, dict) else None


def _words(value: object) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _nodes(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


FETCH_S = 600.0
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

        `report` gets git's progress, as "Receiving objects 43 %". Raises HostError.
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
class RecipeChange:
    """Recipe that differs between two commits."""

    kind: str
    """added, removed or changed."""
    path: str
    diff: tuple[str, ...]


def entries(source: Source) -> list[Entry]:
    """Return the recipes and profiles of a source, in natural order. Raises HostError."""
    return read_entries(source.name, _recipe_texts(pinned_clone(source), source.commit))


def entry_text(source: Source, name: str) -> tuple[Entry, str]:
    """Return an entry, by its short name or its path, and its text. Raises ProfileError `entry_unknown`, HostError."""
    texts = _recipe_texts(pinned_clone(source), source.commit)
    known = read_entries(source.name, texts)
    for entry in known:
        if name in (entry.name, entry.path):
            return entry, texts[entry.path]
    near = difflib.get_close_matches(name, [entry.name for entry in known], 3, 0.5)
    raise ProfileError(
        f"{source.name} has no recipe {name!r} at {source.short_commit}.",
        code="entry_unknown",
        hint=f"Nearest: {', '.join(near)}." if near else f"`sparkdash profiles search {source.name}` lists them.",
    )


def changes(clone: Clone, before: str, after: str) -> list[RecipeChange]:
    """Return the recipes that differ between two commits of a clone, by path. Raises HostError."""
    old, new = _recipe_texts(clone, before), _recipe_texts(clone, after)
    found = []
    for path in sorted({*old, *new}):
        if path not in old:
            found.append(RecipeChange("added", path, ()))
        elif path not in new:
            found.append(RecipeChange("removed", path, ()))
        elif old[path] != new[path]:
            found.append(RecipeChange("changed", path, tuple(diff_lines(old[path], new[path]))))
    return found


def diff_lines(before: str, after: str) -> Sequence[str]:
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]


def count_recipes(clone: Clone, commit: str) -> int:
    return len(read_entries("", _recipe_texts(clone, commit)))


def _recipe_texts(clone: Clone, commit: str) -> dict[str, str]:
    files = {file.path: file for file in clone.files(commit)}
    manifest = next((text for _, text in clone.texts([files[MANIFEST]])), None) if MANIFEST in files else None
    paths = candidate_paths(files, recipe_folders(manifest))
    return {file.path: text for file, text in clone.texts([files[path] for path in paths[:MOST_FILES]])}
