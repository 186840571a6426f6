"""Definition of a run: its arms, the order of its launches, its cells.

Rule: None is unknown. Pure.
"""

import shlex
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from sparkdash.domain.base import Frozen

FORMAT = 1
"""Version of run.json and records.jsonl. Raised when an older sparkdash could no longer read them."""


class Kind(StrEnum):
    """Quantity by which the samples of a cell are compared."""

    SPEED = "speed"
    PREFIX = "prefix"
    MATH = "math"


class Mode(StrEnum):
    """Amount of measuring, which limits what may be claimed."""

    SCREEN = "screen"
    STANDARD = "standard"
    CAREFUL = "careful"


class CellKey(Frozen):
    """Identity of a cell in a suite's table. Hashable; lengths in tokens."""

    suite: str
    context: int = Field(ge=0)
    """Length of the whole prompt, template and question included, as the engine counts it; 0: the question alone."""
    output: int = Field(gt=0)
    """Forced length; for math the maximum."""
    concurrency: int = Field(default=1, gt=0)
    warm: bool = False
    """True: the same context was sent before, so that the prefix cache holds it."""
    kind: Kind = Kind.SPEED
    text: str = ""
    """Class of prompt (code, prose, JSON, chat); empty: all classes of the suite."""


class Arm(Frozen):
    """Compared configuration of an engine."""

    name: str
    """Short name, unique in the run: the column's head."""
    profile: str
    parameters: dict[str, str] = {}
    """Profile parameters that a sweep changes for this arm."""
    swept: str | None = None
    """Original profile of a sweep's arm; `profile` is deleted when the sweep is complete."""
    impossible: str | None = None
    """Reason why the arm cannot run (a head that the checkpoint lacks). It has no launches."""


class LaunchSlot(Frozen):
    """Position in the order of launches."""

    arm: str
    block: int = Field(ge=0)
    """Launches of one block are compared with each other (plan/run_plan.py)."""


class PlannedCell(Frozen):
    """Cell and its repetitions per launch."""

    key: CellKey
    reps: int = Field(gt=0)
    """Repetitions in one launch; for math the number of questions."""
    launches: tuple[int, ...] | None = None
    """Launches that measure the cell; None: all."""


class Host(Frozen):
    """Facts about the box; None: unknown."""

    name: str | None = None
    gpu: str | None = None
    driver: str | None = None
    kernel: str | None = None
    memory_bytes: int | None = None


class Run(Frozen):
    """Identity of a run: what is compared, and on which box. Stored as run.json."""

    format: int = FORMAT
    id: str
    suite: str
    suite_version: str
    suite_hash: str
    """SHA-256 of the measured suite. Figures of different hashes are not compared."""
    suite_file: str | None = None
    """Path of the suite's file, `~` for the home; None: the suite is found by its name."""
    lengths: dict[str, int] = {}
    """Names of the suite's output lengths, in tokens; empty: unnamed."""
    arms: tuple[Arm, ...]
    baseline: str
    """Name of the arm with which the others are compared."""
    mode: Mode
    seed: int
    created_at: datetime
    order: tuple[LaunchSlot, ...]
    """Launches, first to last. A launch's index is its position here."""
    cells: tuple[PlannedCell, ...]
    host: Host = Host()
    target: str = "gateway"
    """Destination of requests; earlier versions also measured past the gateway."""
    simulated: bool = False
    """True with at least one simulated engine; every report says so."""
    reps: int | None = None
    """Repetitions requested instead of the mode's; None: the mode's."""
    version: str | None = None
    ended_at: datetime | None = None
    displaced: tuple[str, ...] | None = None
    """Engines that ran before, the active one last; None once they are back. A resume after a kill brings them back."""

    @property
    def suite_options(self) -> str:
        """Argument of `--suite` that finds the suite again, in shell quotes."""
        return self.suite if self.suite_file is None else _quoted_path(self.suite_file)

    def arm(self, name: str) -> Arm:
        """Return the arm of that name. Raises KeyError: there is none."""
        return {arm.name: arm for arm in self.arms}[name]

    def planned(self, launch: int) -> tuple[PlannedCell, ...]:
        return tuple(cell for cell in self.cells if cell.launches is None or launch in cell.launches)


def _quoted_path(path: str) -> str:
    """Quote a path for a shell, which still expands its `~`."""
    home = "~/" * path.startswith("~/")
    return home + shlex.quote(path.removeprefix(home))
