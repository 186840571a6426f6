"""Folder of a run on disk: run.json, the records, and beside the folders the calibration.

Owns: the files, and that run.json is replaced atomically. Must not know: what the figures mean.
Rule 1: a torn last line of records is no error: what it held is a gap.
Rule 2: keys that another sparkdash added to run or records are ignored; FORMAT is raised where that would mislead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from sparkdash.bench.journal import RECORDS, run_unwritable
from sparkdash.bench.judge.box_noise import Noise
from sparkdash.bench.records import RECORD, CellRecord, LaunchRecord, RequestSample
from sparkdash.bench.results import Results, gather
from sparkdash.bench.run import FORMAT, Run
from sparkdash.domain.base import Frozen
from sparkdash.errors import AdmissionError
from sparkdash.paths import bench_dir

RUN = "run.json"
CALIBRATION_DAYS = 90
"""Age after which a calibration no longer counts: kernels, drivers and the room's temperature have changed."""


def create_run_folder(run: Run, root: Path | None = None) -> Path:
    """Create the folder of a new run, named by its id, with run.json in it.

    Raises:
        AdmissionError: `run_exists`: that id is taken.
        HostError: `run_unwritable`: the disk is full or read-only.
    """
    place = (root or bench_dir()) / run.id
    try:
        place.mkdir(parents=True)
    except FileExistsError:
        raise AdmissionError(f"There is already a run {run.id}.", code="run_exists", status=409) from None
    except OSError as error:
        raise run_unwritable(place, error) from error
    save_run(place, run)
    return place


@contextlib.contextmanager
def keep_if_launched(run: Run, root: Path | None = None) -> Iterator[Path]:
    """Yield the run's folder. A new one is deleted when the block fails before an engine was launched.
    Raises as `create_run_folder`.
    """
    place = (root or bench_dir()) / run.id
    if place.exists():
        yield place
        return
    create_run_folder(run, root)
    try:
        yield place
    except BaseException:
        with contextlib.suppress(AdmissionError):
            if not read_results(place).launches:
                shutil.rmtree(place, ignore_errors=True)
        raise


def save_run(place: Path, run: Run) -> None:
    """Replace run.json; a reader sees the old one or the new one, also after a power cut.

    Raises:
        HostError: `run_unwritable`.
    """
    try:
        _replace(place / RUN, run.model_dump_json(indent=1) + "\n")
        _sync_folder(place.parent)
    except OSError as error:
        raise run_unwritable(place, error) from error


def save_calibration(run: Run, noise: dict[str, Noise], root: Path | None = None) -> None:
    """Save the noise by which later runs are judged. Simulated and real boxes have separate files.

    Raises:
        HostError: `run_unwritable`.
    """
    place = root or bench_dir()
    kept = Calibration(run=run.id, noise=noise, at=datetime.now(UTC))
    try:
        _replace(place / _calibration_of(run.simulated), kept.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise run_unwritable(place, error) from error


def read_calibration(*, simulated: bool, root: Path | None = None) -> dict[str, Noise]:
    """Return the noise by metric of the last calibration; empty without a readable file, or after CALIBRATION_DAYS."""
    try:
        text = ((root or bench_dir()) / _calibration_of(simulated)).read_bytes()
        found = Calibration.model_validate_json(text)
    except (OSError, ValidationError):
        return {}
    fresh = found.at is not None and datetime.now(UTC) - found.at < timedelta(days=CALIBRATION_DAYS)
    return found.noise if fresh else {}


def read_results(place: Path) -> Results:
    """Read the run and all of its measurements.

    Raises:
        AdmissionError: `run_not_found`, `run_unreadable`.
    """
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
    """Read the run's definition, without its measurements.

    Raises:
        AdmissionError: `run_not_found`, `run_unreadable`.
    """
    try:
        text = (place / RUN).read_bytes()
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
    held = f"The newest is {known[0].name}." if known else "Nothing was measured yet."
    raise AdmissionError(f"There is no run {name}.", code="run_not_found", status=404, hint=held)


def _runs_called(name: str, runs: Sequence[Path]) -> list[Path]:
    """Return the run with this id, or all whose ids begin so; none for an empty name."""
    exact = [one for one in runs if one.name == name]
    return exact or [one for one in runs if name and one.name.startswith(name)]


class Calibration(Frozen):
    """Contents of a calibration file."""

    run: str
    """Id of the A/A run behind it."""
    noise: dict[str, Noise]
    at: AwareDatetime | None = None
    """When it was saved."""


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines with their numbers; a torn last line is skipped."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n") and not line.isspace():
                yield number, line


def _calibration_of(simulated: bool) -> str:
    return "calibration-simulated.json" if simulated else "calibration.json"


def _replace(path: Path, text: str) -> None:
    """Write the file atomically."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync_folder(path.parent)


def _sync_folder(place: Path) -> None:
    """Make a new name durable: sync its folder."""
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
