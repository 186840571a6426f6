"""What was asked: a run, its arms, the order of its launches, its cells. Pure.

Owns: the identity of a run, which lies in run.json. Must not know: files (folder.py), what was measured (records.py).
Rule: None was not told.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from sparkdash.bench.judge.arm_comparison import Noise
from sparkdash.domain.base import Frozen

FORMAT = 1
"""Of run.json and records.jsonl; raised whenever an older sparkdash could no longer read them."""


class Kind(StrEnum):
    """What a cell's samples are compared by."""

    SPEED = "speed"
    """Rates and latencies."""
    PREFIX = "prefix"
    """The share of prompt tokens that came from the prefix cache."""
    MATH = "math"
    """Right answers."""
    IDENTICAL = "identical"
    """Greedy outputs, equal to the baseline's or not."""


class Mode(StrEnum):
    """How much is spent, and so how much may be claimed."""

    SCREEN = "screen"
    STANDARD = "standard"
    CAREFUL = "careful"


class CellKey(Frozen):
    """One cell of a suite's table; hashable. Lengths in tokens."""

    suite: str
    context: int = Field(ge=0)
    """The whole prompt, its template and question included, as the engine counts it; 0: the question alone."""
    output: int = Field(gt=0)
    """Forced length; for math the most that may be generated."""
    concurrency: int = Field(default=1, gt=0)
    """Requests at once, in a closed loop."""
    warm: bool = False
    """Was the same context sent before, so that the prefix cache holds it?"""
    kind: Kind = Kind.SPEED
    text: str = ""
    """The class of prompt (code, prose, JSON, chat); empty: the suite's whole panel."""


class Arm(Frozen):
    """One of the things compared."""

    name: str
    """Short and unique in the run: the column's head."""
    profile: str
    """The profile, or the URL of a server that is not ours."""
    parameters: dict[str, str] = {}
    """What of the profile is changed for this arm: a sweep."""
    swept: str | None = None
    """The profile that a sweep's arm is made of; `profile` is gone when the sweep is whole."""
    impossible: str | None = None
    """Why it cannot be run (a head that the checkpoint lacks); it has no launches, and its cells say this."""


class LaunchSlot(Frozen):
    """One place in the order of launches."""

    arm: str
    block: int = Field(ge=0)
    """Launches of one block are compared with each other (order.py)."""


class PlannedCell(Frozen):
    """A cell and how often it is measured in a launch."""

    key: CellKey
    reps: int = Field(gt=0)
    """Repetitions in one launch; for math the number of questions."""
    launches: tuple[int, ...] | None = None
    """In these launches only; None is in all."""


class Host(Frozen):
    """The box, as far as it was told."""

    name: str | None = None
    gpu: str | None = None
    driver: str | None = None
    kernel: str | None = None
    memory_bytes: int | None = None


class Run(Frozen):
    """What was asked, on which box: the identity of a run. It lies in run.json."""

    format: int = FORMAT
    id: str
    suite: str
    suite_version: str
    suite_hash: str
    """SHA-256 of the suite as it was measured; figures of other hashes are not compared."""
    suite_file: str | None = None
    """Where it was read, `~` being the home; None: it is found by its name."""
    lengths: dict[str, int] = {}
    """What the suite calls its answers' lengths, in tokens; empty: it does not say."""
    arms: tuple[Arm, ...]
    baseline: str
    """The name of the arm that the others are compared with."""
    mode: Mode
    seed: int
    created_at: datetime
    order: tuple[LaunchSlot, ...]
    """The launches, first to last; a launch's index is its place here."""
    cells: tuple[PlannedCell, ...]
    host: Host = Host()
    target: str = "gateway"
    """Where requests were sent: gateway, direct, or url."""
    model: str | None = None
    """What was asked for of a server that is not ours; None: the first that it lists."""
    simulated: bool = False
    """At least one engine was a simulated one; every report says so."""
    reps: int | None = None
    """Repetitions that were asked for in place of the mode's; None: none were."""
    noise: dict[str, Noise] = {}
    """By metric, what the box was calibrated to when the run began: no smaller difference is claimed."""
    version: str | None = None
    """Of the sparkdash that measured."""
    ended_at: datetime | None = None
    """When the last gap was filled."""

    @property
    def suite_name(self) -> str:
        """What was measured, exactly: `seeds 1 (5eed5eed)`, the last being the beginning of the suite's hash."""
        return f"{self.suite} {self.suite_version} ({self.suite_hash[:8]})"

    def arm(self, name: str) -> Arm:
        """The arm of that name.

        Raises:
            KeyError: there is none.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    def planned(self, launch: int) -> tuple[PlannedCell, ...]:
        """The cells of one launch."""
        return tuple(cell for cell in self.cells if cell.launches is None or launch in cell.launches)
