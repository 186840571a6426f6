"""Progress of a build, read from what `podman build` prints.

Owns: the form of its lines (podman 4 and 5), and the last lines for a failure. Must not know how it is run.
Pure.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from sparkdash.printable import printable

_STEP = re.compile(r"(?:\[(\d+)/(\d+)\] )?STEP (\d+)(?:/(\d+))?: (.*)")
TAIL = 40
"""Lines that a failure shows."""


@dataclass(frozen=True, slots=True)
class BuildStep:
    """A step of a build. `stage` and `number` count from 1; `of` and `stages` are None where podman does not say."""

    image: str
    text: str
    number: int | None = None
    of: int | None = None
    stage: int = 1
    stages: int = 1
    cached: bool = False
    done: bool = False

    @property
    def fraction(self) -> float | None:
        """Share of the steps that are over; steps differ in length, so this is no share of the time."""
        if self.done:
            return 1.0
        if self.number is None or not self.of:
            return None
        return (self.stage - 1 + (self.number - 1) / self.of) / self.stages


class BuildReader:
    """Reads the lines of one build."""

    def __init__(self, image: str) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.step = BuildStep(image, "begins")
        self._image = image

    def feed(self, line: str) -> BuildStep | None:
        """Take a line; return the step if it began with it or came from the cache."""
        line = printable(line)
        self.tail.append(line)
        if found := _STEP.match(line):
            stage, stages, number, of, text = found.groups()
            self.step = BuildStep(
                self._image, text, int(number), int(of) if of else None, int(stage or 1), int(stages or 1)
            )
            return self.step
        if line.startswith("--> Using cache") and not self.step.cached:
            was = self.step
            self.step = BuildStep(self._image, was.text, was.number, was.of, was.stage, was.stages, cached=True)
            return self.step
        return None
