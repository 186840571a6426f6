"""Folder of a run on disk: run.json, the records and their one writer."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pydantic import ValidationError

from sparkdash.bench.results import RECORD, CellRecord, LaunchRecord, RequestSample, Results, gather
from sparkdash.bench.run import FORMAT, Run
from sparkdash.errors import AdmissionError, writing
from sparkdash.paths import LARGE, bench_dir, open_regular, read_small_file, replace_file

RECORDS = "records.jsonl"


class Journal:
    """The one writer of a run's records: `with Journal(place) as journal: journal.append(sample); journal.sync()`.

    Entering takes a lock that ends with the process, and cuts off a line that a power cut left torn.

    Raises (on entering):
        AdmissionError: `run_busy`: another process is measuring this run.
        HostError: `run_unwritable`.
    """

    def __init__(self, place: Path) -> None:
        self._path = place / RECORDS
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        with writing(self._path.parent, "run_unwritable"):
            file = self._path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise AdmissionError(
                f"The run {self._path.parent.name} is being measured by another process.", code="run_busy", status=409
            ) from None
        file.truncate(_whole(file))
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # a full disk was told of by append
                file.close()

    def append(self, record: LaunchRecord | RequestSample | CellRecord) -> None:
        """Write one record; it outlives the process. Raises HostError: `run_unwritable`: the disk is full."""
        file = self._opened()
        with writing(self._path.parent, "run_unwritable"):
            file.write(record.model_dump_json().encode() + b"\n")
            file.flush()

    def sync(self) -> None:
        """Wait until all records are on the disk, after each launch and cell. Raises HostError: `run_unwritable`."""
        file = self._opened()
        with writing(self._path.parent, "run_unwritable"):
            file.flush()
            os.fsync(file.fileno())

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise RuntimeError("a journal writes inside `with` only")
        return self._file


def _whole(file: IO[bytes]) -> int:
    """Return the bytes up to the end of the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65536)
        file.seek(start)
        if (last := file.read(end - start).rfind(b"\n")) >= 0:
            return start + last + 1
        end = start
    return 0


RUN = "run.json"


def create_run_folder(run: Run, root: Path | None = None) -> Path:
    """Create the folder of a new run, named by its id, with run.json in it.

    Raises:
        AdmissionError: `run_exists`: that id is taken.
        HostError: `run_unwritable`: the disk is full or read-only.
    """
    place = (root or bench_dir()) / run.id
    with writing(place, "run_unwritable"):
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            raise AdmissionError(f"There is already a run {run.id}.", code="run_exists", status=409) from None
    save_run(place, run)
    return place


@contextlib.contextmanager
def keep_if_launched(run: Run) -> Iterator[Path]:
    """Yield the run's folder. A new one is deleted when the block fails before an engine was launched.
    Raises as `create_run_folder`.
    """
    place = bench_dir() / run.id
    if place.exists():
        yield place
        return
    create_run_folder(run)
    try:
        yield place
    except BaseException:
        with contextlib.suppress(AdmissionError):
            if not read_results(place).launches:
                shutil.rmtree(place, ignore_errors=True)
        raise


def save_run(place: Path, run: Run) -> None:
    """Replace run.json: readers see the old or new one, even after a power cut. Raises HostError: `run_unwritable`."""
    with writing(place, "run_unwritable"):
        replace_file(place / RUN, f"{run.model_dump_json(indent=1)}\n".encode(), mode=0o644)
        for folder in (place, place.parent):
            _sync_folder(folder)


def read_results(place: Path) -> Results:
    """Read the run and all of its measurements. Raises AdmissionError: `run_not_found`, `run_unreadable`."""
    run = read_run(place)
    damaged: list[int] = []
    records: list[LaunchRecord | RequestSample | CellRecord] = []
    for number, line in _lines(place / RECORDS):
        try:
            records.append(RECORD.validate_json(line, extra="ignore"))
        except ValidationError:
            damaged.append(number)
    return gather(run, records, damaged)


def read_run(place: Path) -> Run:
    """Read the run's definition, without its measurements. Raises AdmissionError: `run_not_found`, `run_unreadable`."""
    try:
        text = read_small_file(place / RUN, LARGE)
    except (FileNotFoundError, NotADirectoryError):
        raise AdmissionError(
            f"There is no run in {place}.", code="run_not_found", status=404, hint="`sparkdash bench show` lists them."
        ) from None
    except OSError as error:
        raise AdmissionError(f"{place / RUN} cannot be read: {error.strerror}.", code="run_unreadable") from error
    try:
        run = Run.model_validate_json(text, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AdmissionError(
            f"{place / RUN} is no run that this sparkdash understands: {where or 'the file'}: {first['msg']}.",
            code="run_unreadable",
            hint="A newer sparkdash may have written it.",
        ) from error
    if run.format > FORMAT:
        raise AdmissionError(
            f"{place / RUN} has format {run.format}; this sparkdash reads up to {FORMAT}.",
            code="run_unreadable",
            hint="Update sparkdash.",
        )
    return run


def list_runs(root: Path | None = None) -> list[Path]:
    """Return the folders of all runs, newest first by name; an id begins with its time."""
    place = root or bench_dir()
    return sorted((file.parent for file in place.glob(f"*/{RUN}")), key=lambda one: one.name, reverse=True)


def find_run(name: str, root: Path | None = None) -> Path:
    """Return the folder of a run by its id, a unique beginning of its id, or `last`.

    Raises:
        AdmissionError: `run_not_found`, or `run_ambiguous`.
    """
    known = list_runs(root)
    if name == "last" and known:
        return known[0]
    found = _runs_called(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.name for one in found[:5])
        raise AdmissionError(
            f"{name} matches several runs: {names}.", code="run_ambiguous", hint="Type more of the id."
        )
    held = f"The newest is {known[0].name}." if known else "`sparkdash bench PROFILE` makes the first one."
    raise AdmissionError(f"There is no run {name}.", code="run_not_found", status=404, hint=held)


def _runs_called(name: str, runs: Sequence[Path]) -> list[Path]:
    """Return the run with this id, or all whose ids begin so; none for an empty name."""
    exact = [one for one in runs if one.name == name]
    return exact or [one for one in runs if name and one.name.startswith(name)]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines with their numbers; a torn last line is skipped."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n") and not line.isspace():
                yield number, line


def _sync_folder(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
