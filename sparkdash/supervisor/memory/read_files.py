"""Read files: how far a load has read its weight files, from their opens, closes and positions.

Owns: the ranges that lie behind the reader, reported once for each time they are read. Must not know how opens are
observed, nor what is done with the ranges.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkdash.units import GIB, MIB

Range = tuple[int, int, int]
QUICKEST = 30 * GIB
"""Bytes a second that no reader surpasses (27 GiB/s from memory were measured): a shorter open did not read the file.
"""
MARGIN = 64 * MIB
"""Bytes behind a position that may still be read: several threads share one descriptor."""
STEP = 64 * MIB
"""Least bytes of an open file that are told at a time."""


@dataclass(slots=True)
class _File:
    size: int
    is_open: bool = False
    since: float | None = None
    """Time when it was opened last; None: never, as far as was seen."""
    is_behind: bool = False
    """Read whole and closed, and not told yet."""
    told: int = 0
    """Bytes from its beginning that were told while it is open."""
    position: int = 0
    """Position at the last look."""


class ReadFiles:
    """Weight files of one load, by any number that stands for each."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._files = {number: _File(size) for number, size in sizes.items()}

    @property
    def has_open(self) -> bool:
        """Whether a file is open now."""
        return any(file.is_open for file in self._files.values())

    def opened(self, number: int, at: float) -> None:
        """Note the open of a file."""
        file = self._files[number]
        if not file.is_open:
            file.is_open, file.since, file.told, file.position = True, at, 0, 0

    def closed(self, number: int, at: float) -> None:
        """Note the end of an open; one whose beginning nobody saw counts as long."""
        file = self._files[number]
        long = file.since is None or at - file.since >= file.size / QUICKEST
        file.is_open, file.is_behind = False, file.is_behind or long

    def forget(self) -> None:
        """Start anew: reports were lost, and what is open is not known."""
        self._files = {number: _File(file.size) for number, file in self._files.items()}

    def behind(self, positions: Mapping[int, int]) -> list[Range]:
        """Return the ranges read since the last call, as (file, from, up to). `positions` are those of open files now.

        An open file counts up to the smaller of two positions in a row, and whole once it is closed.
        """
        found = []
        for number, file in self._files.items():
            if file.is_open:
                now = positions.get(number, 0)
                end, file.position = min(now, file.position) - MARGIN, now
                if end >= file.told + STEP:
                    found.append((number, file.told, end))
                    file.told = end
            elif file.is_behind:
                found.append((number, 0, file.size))
                file.is_behind = False
        return found

    def everything(self) -> list[Range]:
        """Ranges that cover each whole file, for the end of the load."""
        return [(number, 0, file.size) for number, file in self._files.items()]
