"""File with the profiles of a sweep, kept among the owner's while the sweep is incomplete.

Owns: the file: its path, how a sweep's file is recognised, when it is deleted. Must not know: what is swept (sweep.py),
the daemon.
Rule 1: a file without this first line, or under another name, is the owner's. It is never overwritten or deleted.
Rule 2: a file is deleted when no process measures with it (its lock is free) and no run needs it (by the run folders),
also after a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sparkdash import paths
from sparkdash.errors import AdmissionError, HostError

HEAD = "# Written by sparkdash ab --sweep, and taken away when nothing of the sweep is missing.\n"


@contextmanager
def sweep_profiles(family: str, text: str) -> Iterator[Path]:
    """Write the profiles and keep the file locked until the context ends.

    Raises:
        AdmissionError: `sweep_taken`: the owner has a file of that name.
        HostError: `sweep_unwritable`.
    """
    file = sweep_file_path(family)
    if file.exists() and not _is_sweeps(file):
        raise AdmissionError(
            f"{file} is a file of your own. The sweep's profiles need that name.",
            code="sweep_taken",
            status=409,
            hint="Give it another name.",
        )
    try:
        held = _written(file, HEAD + text)
    except OSError as error:
        raise HostError(f"{file} cannot be written: {error.strerror}.", code="sweep_unwritable") from error
    with held:
        yield file


def sweep_file_path(family: str) -> Path:
    """Return the path of that family's profiles."""
    return paths.config_dir() / "profiles" / f"{family}.yaml"


def is_needed(family: str) -> bool:
    """Whether an unfinished run needs these profiles."""
    from sparkdash.bench import run_folder  # 25 ms, which a daemon's start needs only where there is such a file

    for run in run_folder.list_runs():
        with contextlib.suppress(AdmissionError):
            told = run_folder.read_run(run)
            if told.ended_at is None and any(arm.profile.split("/", 1)[0] == family for arm in told.arms):
                return True
    return False


def delete_sweep_file(family: str) -> bool:
    """Delete the file. Returns whether it existed."""
    file = sweep_file_path(family)
    there = file.exists() and _is_sweeps(file)
    if there:
        file.unlink(missing_ok=True)
    return there


def delete_stale_files() -> None:
    """Delete files of measurements that were killed before their run began."""
    for file in sweep_file_path("any").parent.glob("*.yaml"):
        with contextlib.suppress(OSError):
            if _is_sweeps(file) and _is_free(file) and not is_needed(file.stem):
                file.unlink(missing_ok=True)


def _written(file: Path, text: str) -> IO[str]:
    """Return the written file, locked while it is open."""
    file.parent.mkdir(parents=True, exist_ok=True)
    held = file.open("a", encoding="utf-8")
    fcntl.flock(held, fcntl.LOCK_SH)
    held.truncate(0)
    held.write(text)
    held.flush()
    return held


def _is_sweeps(file: Path) -> bool:
    try:
        return file.read_text(encoding="utf-8").startswith(f"{HEAD}profile: {file.stem}\n")
    except (OSError, ValueError):
        return False


def _is_free(file: Path) -> bool:
    with file.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
