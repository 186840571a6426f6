"""Source of an image: fetched by git at its commit, or a folder beside the profile, and the files that are built.

Owns: the checkout, the edits in it, and the digests. Must not know podman. Rule: nothing of the source is run here.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from sparkdash.domain.images.image_build import ImageBuild, SourceEdit
from sparkdash.errors import HostError, ProfileError
from sparkdash.host.command import run_command, stdout_lines
from sparkdash.host.image_build import argv
from sparkdash.host.image_build.kept import kept_child
from sparkdash.printable import printable

NAMES = ("Containerfile", "Dockerfile")
GIT_S = 30.0
"""Deadline of a git command that fetches nothing."""
SILENCE_S = 120.0
"""Longest silence of a fetch."""
_PROGRESS = re.compile(r"\d+% \(\d+/\d+\)")
"""Progress in git's output, such as "Receiving objects:  10% (309/3088)"."""
HASHED_BYTES = 16 << 20
"""Bytes of a folder beside the profile whose content is compared; of the rest the names and sizes."""


@dataclass(frozen=True, slots=True)
class BuildSource:
    """Files of a build on this box."""

    context: Path
    recipe: Path
    """Containerfile, or the script."""
    recipe_digest: str
    """SHA-256 of it, after the edits."""

    def text(self) -> str:
        """Read the Containerfile."""
        return self.recipe.read_text(errors="replace")


def local_files(folder: Path, build: ImageBuild) -> dict[str, str]:
    """Digest the files beside a profile that its image is built from; empty for a repository, which has its commit."""
    if build.repo or build.context is None:
        return {}
    left, found = HASHED_BYTES, {}
    root = folder / build.context
    for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        size = path.stat().st_size
        left -= size
        content = path.read_bytes() if left >= 0 else str(size).encode()
        found[str(path.relative_to(root))] = hashlib.sha256(content).hexdigest()
    return found


def locate(build: ImageBuild, root: Path) -> BuildSource:
    """Find context and Containerfile below `root`, the checkout or the profile's folder.

    Raises:
        ProfileError: source_missing.
    """
    context = root / (build.context or ".")
    names = (build.script or build.containerfile,) if build.script or build.containerfile else NAMES
    for recipe in (context / name for name in names if name):
        if recipe.is_file():
            _inside(root, context, recipe)
            return BuildSource(context, recipe, hashlib.sha256(recipe.read_bytes()).hexdigest())
    raise ProfileError(
        f"The source has no {' or '.join(str(Path(build.context or '.') / name) for name in names if name)}.",
        code="source_missing",
        hint="Correct `context`, `containerfile` or `script` under `build:` of the profile.",
    )


def _inside(root: Path, *paths: Path) -> None:
    """Refuse a link that leads out of the source: the build would see files of this box."""
    for path in paths:
        if not path.resolve().is_relative_to(root.resolve()):
            raise ProfileError(
                f"{path.relative_to(root)} of the source is a link that leads out of it.", code="source_missing"
            )


async def fetch(build: ImageBuild, folder: Path) -> AsyncIterator[str]:
    """Bring the repository's commit into `folder` and edit it; yield lines of progress.

    A checkout that is there already is put back to its commit, and nothing is fetched.

    Raises:
        HostError: source_unreachable.
        ProfileError: source_changed (an edit's text is not there).
    """
    assert build.repo is not None  # noqa: S101 - the caller asks only for repositories
    assert build.commit is not None  # noqa: S101 - as above
    if shutil.which("git") is None:
        raise HostError("git is missing.", code="git_missing", hint="Install it: sudo apt install git.")
    if await is_fetched(folder, build.commit):
        await _git(argv.git(folder, "checkout", "--quiet", "--force", "--detach", build.commit), build.repo)
        await _git(argv.git(folder, "clean", "-fdxq"), build.repo)
    else:
        await asyncio.to_thread(_empty, folder)
        for words in argv.fetch_source(build.repo, build.commit, folder):
            async for line in _fetching(words, build.repo):
                yield line
    if build.submodules:
        async for line in _fetching(argv.fetch_submodules(folder), build.repo):
            yield line
    for edit in build.edits:
        _edit(folder, edit)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


async def is_fetched(folder: Path, commit: str) -> bool:
    """Whether the folder is a checkout of that commit."""
    if not (folder / ".git").is_dir():
        return False
    done = await run_command(argv.git(folder, "rev-parse", "HEAD"), deadline_s=GIT_S, env=_quiet())
    return done.code == 0 and done.out.strip() == commit


async def _git(words: list[str], repo: str) -> None:
    done = await run_command(words, deadline_s=GIT_S, env=_quiet())
    if done.code:
        raise _unreachable(repo, done.err)


async def _fetching(words: list[str], repo: str) -> AsyncIterator[str]:
    told: list[str] = []
    try:
        async with kept_child(words, env=_quiet()) as process:
            async for line in stdout_lines(process, silence_s=SILENCE_S):
                shown = printable(line)
                if not _PROGRESS.search(shown):
                    told = [*told[-5:], shown]
                yield shown
            code = await process.wait()
    except TimeoutError:
        raise _unreachable(repo, f"it was silent for {SILENCE_S:.0f} s") from None
    if code:
        raise _unreachable(repo, " ".join(told))


def _edit(folder: Path, edit: SourceEdit) -> None:
    path = folder / edit.file
    try:
        _inside(folder, path)
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        text = ""
    if edit.find not in text:
        raise ProfileError(
            f"{edit.file} of the source does not contain {edit.find!r}, which `edits` replaces.",
            code="source_changed",
            hint="Correct `edits` under `build:` of the profile.",
        )
    path.write_text(text.replace(edit.find, edit.put))


def _unreachable(repo: str, words: str) -> HostError:
    said = printable(words.strip())[-400:] or "git said nothing"
    return HostError(
        f"The source {repo} cannot be fetched: {said}.",
        code="source_unreachable",
        hint="Check the network and the address; what was fetched before stays.",
    )


def _quiet() -> dict[str, str]:
    """Return an environment in which git never asks for a password."""
    return {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:git:file", "LC_ALL": "C"}
