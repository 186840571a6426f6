"""Copy of one model to a node by rsync: which files are missing there; resumed after a cut. Blocking.

A file grows under a hidden name and gets its own when rsync has verified its checksum; what a cut leaves is kept in the
folder PART beside it. Files of equal size and time are equal. Of equal size only: a blob of the hub's cache is named by
its checksum, any other file is hashed on both boxes, and equal ones get equal times, so that each is hashed once.
"""

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparkdash.catalog.checkpoint.on_disk import repository_folder
from sparkdash.catalog.checkpoint.weights import locate_checkpoint
from sparkdash.domain.images import CopyStep
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import HostError, ProfileError
from sparkdash.host.command import CommandResult
from sparkdash.host.hub_download import wanted_files
from sparkdash.host.local_weights import PART, split_model_files, split_repository
from sparkdash.nodes.programs import program_text
from sparkdash.nodes.shipping import drop_pages
from sparkdash.nodes.shipping.child import CopyMeter, SshAccess, disk_full, memory, run_watched

IDLE_S = 20
"""Silence after which rsync gives a connection up, on both boxes, and keeps what arrived in PART."""
PAUSES_S = (IDLE_S + 2.0, 5.0, 10.0, 20.0)
"""Pauses before further tries after a broken connection, counted anew once bytes have arrived."""
RSYNC = (
    "rsync", "-lpt", "-s", "-8", "--no-h", "--mkpath", "--copy-unsafe-links", f"--partial-dir={PART}",
    "--exclude=*.incomplete", "--from0",
)  # fmt: skip
_LOST = (10, 12, 30, 35, 255)
"""rsync's exit codes of a connection that broke, and ssh's."""
_LISTED = re.compile(r"(\S{11}) (\d+) (.*)")


class Change(NamedTuple):
    """Difference that rsync lists: its flags (`%i`), the bytes of the file, its name."""

    flags: str
    size: int
    name: str

    @property
    def missing(self) -> bool:
        """Whether a file or link is to be sent, and not only its attributes."""
        return self.flags[0] in "<c" and self.flags[1] in "fL"

    @property
    def doubtful(self) -> bool:
        """Whether a file is there with the same size and another time."""
        return self.flags.startswith("<f") and self.flags[2:4] == ".."


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Model on this box, and its folder on the node."""

    model: str
    folder: Path
    root: str
    names: tuple[str, ...] | None = None
    """Files and links below the folder; None: all."""


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """Files and links of a model that a node lacks."""

    names: tuple[str, ...]
    size: int
    """Bytes of them."""
    total: int
    """Bytes of the whole model."""


def model_files(ref: ModelRef, hf_home: Path, hf_home_there: str) -> ModelFiles:
    """List the files of a model. Raises HostError: weights_missing, weights_unreadable."""
    try:
        return _in_cache(ref, hf_home, hf_home_there) if ref.hf else _at(Path(ref.ref).expanduser(), ref.ref)
    except ProfileError as error:
        raise HostError(error.message, code="weights_missing", hint=error.hint) from None
    except OSError as error:
        raise HostError(
            f"{ref.ref} cannot be read: {error.filename}: {error.strerror}.", code="weights_unreadable"
        ) from None


def _in_cache(ref: ModelRef, hf_home: Path, hf_home_there: str) -> ModelFiles:
    """Choose the snapshot's links with their blobs, and the name of its revision."""
    repo, quant = split_repository(ref.ref)
    snapshot = locate_checkpoint(ModelRef(hf=repo, revision=ref.revision), hf_home)
    folder = repository_folder(hf_home, repo)
    found = {str(path.relative_to(snapshot)): path for path in snapshot.rglob("*") if path.is_file()}
    names = set()
    for name in wanted_files(found, quant):
        names.add(f"snapshots/{snapshot.name}/{name}")
        if found[name].is_symlink() and (blob := found[name].resolve()).parent == (folder / "blobs").resolve():
            names.add(f"blobs/{blob.name}")
    revision = f"refs/{ref.revision or 'main'}"
    if (folder / revision).is_file():
        names.add(revision)
    return ModelFiles(ref.ref, folder, f"{hf_home_there.rstrip('/')}/hub/{folder.name}", tuple(sorted(names)))


def _at(place: Path, told: str) -> ModelFiles:
    if place.is_dir():
        return ModelFiles(told, place, str(place))
    if not place.is_file():
        raise ProfileError(f"There is no {place} on this box.", code="weights_missing")
    return ModelFiles(told, place.parent, str(place.parent), tuple(part.name for part in split_model_files(place)))


class WeightsCopy:
    """Copy of models to one node."""

    def __init__(self, access: SshAccess, node: str, meter: CopyMeter) -> None:
        self._access, self._node, self._meter = access, node, meter

    def compare(self, files: ModelFiles, *, any_content: bool) -> MissingFiles:
        """Find what is missing on the node; `any_content`: a file of the right name is not.

        Raises:
            HostError: node_unreachable, copy_failed, copy_refused.
        """
        self._meter.begin(CopyStep.CHECK)
        total, changes = self._listed(files, files.names, *(["--ignore-existing"] if any_content else []))
        equal = self._equal(files, [each for each in changes if each.doubtful])
        missing = [each for each in changes if each.missing and each.name not in equal]
        return MissingFiles(tuple(each.name for each in missing), sum(each.size for each in missing), total)

    def send(self, files: ModelFiles, missing: MissingFiles) -> None:
        """Send what is missing; resumes, and tries again after a cut. The revision's name comes last.

        Raises:
            HostError: disk_full, copy_failed, copy_refused, node_unreachable.
        """
        self._meter.begin(CopyStep.SEND, missing.total, missing.size)
        free = self._free(files.root)
        if free is not None and missing.size > free:
            raise disk_full(self._node, files.root, missing.size, free)
        refs = [name for name in missing.names if name.startswith("refs/")]
        with self._pages_dropped(files) as drop:
            for names in ([name for name in missing.names if name not in refs], refs):
                if names:
                    self._sent(files, names, missing.size, drop)

    def _sent(self, files: ModelFiles, names: Sequence[str], missing: int, drop: Callable[[], object]) -> None:
        reached, pauses = 0, iter(PAUSES_S)

        def look(out: str) -> None:
            nonlocal reached, pauses
            drop()
            told = re.findall(r"\r *(\d+) +\d+%", out)
            if told and int(told[-1]) > reached:
                reached, pauses = int(told[-1]), iter(PAUSES_S)
                self._meter.reach(min(reached, missing))

        while True:
            how = ("--info=progress2", "--no-inc-recursive", f"--timeout={IDLE_S}")
            done = self._rsync(files, names, *how, look=look)
            if done.code == 0:
                return
            if done.code not in _LOST or self._access.refusal(self._node, done.err):
                raise self._error(files, done, missing)
            if (pause_s := next(pauses, None)) is None:
                raise self._error(files, done, missing)
            reached = 0
            self._meter.pause(pause_s)

    def _listed(self, files: ModelFiles, names: Sequence[str] | None, *how: str) -> tuple[int, list[Change]]:
        """Return the bytes of these files, and what rsync would change."""
        done = self._rsync(files, names, "--dry-run", "--stats", "--out-format=%i %l %n", *how)
        if done.code:
            raise self._error(files, done, 0)
        total = re.search(r"^Total file size: (\d+)", done.out, re.MULTILINE)
        found = [
            Change(each[1], int(each[2]), each[3]) for line in done.out.splitlines() if (each := _LISTED.match(line))
        ]
        return int(total[1]) if total else 0, found

    def _equal(self, files: ModelFiles, doubtful: Sequence[Change]) -> set[str]:
        """Return the names of those of equal content; they get equal times."""
        hashed = [each for each in doubtful if not each.name.startswith("blobs/")]
        equal = {each.name for each in doubtful}
        if hashed:
            self._meter.begin(CopyStep.CHECK, sum(each.size for each in hashed))
            _, found = self._listed(files, [each.name for each in hashed], "--checksum")
            equal -= {each.name for each in found if each.missing}
        if equal:
            self._rsync(files, sorted(equal), "--size-only")
        return equal

    def _rsync(
        self, files: ModelFiles, names: Sequence[str] | None, *how: str, look: Callable[[str], object] = lambda _: None
    ) -> CommandResult:
        shell, host = self._access.rsync_shell(self._node)
        chosen = ["-r"] if names is None else ["--files-from=-"]
        ends = [f"{files.folder}/", f"{host}:{files.root.removeprefix('~/')}/"]
        stdin = "\0".join(names or ()).encode("utf-8", "surrogateescape")
        if shutil.which(RSYNC[0]) is None:
            raise _no_rsync("this box")
        return run_watched([*RSYNC, *how, *chosen, "-e", shlex.join(shell), *ends], self._meter, look, stdin=stdin)

    def _free(self, root: str) -> int | None:
        """Free bytes of the disk on which the folder is or will be."""
        script = 'd=$1; while [ ! -e "$d" ]; do d=$(dirname "$d"); done; df -Pk "$d" | tail -n 1'
        done = run_watched(
            self._access.command(self._node, ["sh", "-c", script, "sh", root.removeprefix("~/")]), self._meter
        )
        words = done.out.split()
        return int(words[3]) * 1024 if done.code == 0 and len(words) > 3 and words[3].isdigit() else None

    @contextmanager
    def _pages_dropped(self, files: ModelFiles) -> Iterator[Callable[[], None]]:
        """Keep the files of both boxes out of the page cache for the length of the block; call what it yields often."""
        argv = self._access.command(
            self._node, ["python3", "-I", "-S", "-c", program_text(drop_pages.__name__).decode(), files.root]
        )
        with memory() as said, self._meter.child(argv, stdin=subprocess.PIPE, stdout=said, stderr=said) as process:
            assert process.stdin is not None  # noqa: S101 - pipes as asked for
            pipe, last = process.stdin, 0.0

            def drop() -> None:
                nonlocal last
                if time.monotonic() - last >= drop_pages.EVERY_S:
                    with suppress(OSError):
                        pipe.write(b".")
                        pipe.flush()
                    drop_pages.drop(str(files.folder))
                    last = time.monotonic()

            yield drop
            drop_pages.drop(str(files.folder))
            with suppress(OSError, subprocess.TimeoutExpired):
                pipe.close()
                process.wait(30)

    def _error(self, files: ModelFiles, done: CommandResult, needs: int) -> HostError:
        """Turn what rsync or ssh said into an error."""
        words = [line.strip() for line in done.err.splitlines() if not line.startswith("rsync error:")]
        last = words[0] if words else f"rsync ended with {done.code}"
        if "rsync: not found" in done.err or "rsync: command not found" in done.err:
            return _no_rsync(self._node)
        if "No space left on device" in done.err or "Disk quota exceeded" in done.err:
            return disk_full(self._node, files.root, needs, self._free(files.root) or 0)
        if done.code in _LOST:
            return self._access.lost(self._node, files.model, done.err.strip() or last)
        return HostError(
            f"{files.model} cannot be copied to {files.root} on {self._node}: {last.rstrip('.')}.",
            code="copy_refused",
            hint=f"The user that sparkdash logs in as on {self._node} must be able to write there.",
        )


def _no_rsync(where: str) -> HostError:
    return HostError(
        f"There is no rsync on {where}.",
        code="copy_failed",
        hint=f"Install it on {where}: `sudo apt-get install rsync`.",
    )
