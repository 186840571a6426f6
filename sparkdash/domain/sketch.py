"""LogSketch: quantiles of many values within 1 %, added up in any order (DDSketch, VLDB 2019). Pure."""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from sparkdash.domain.history import Quantiles

ACCURACY = 0.01
"""Relative error of a quantile, at most."""
GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
"""Upper bound of a bucket / its lower bound."""
_PER_LOG = 1 / math.log(GAMMA)
SMALLEST = 1e-9
"""Values up to this one count as zero."""
GREATEST = 1e15
"""Greater values count as this one."""
ZERO = -32768
"""Index of the bucket of zeros; all others are greater."""
_MOST = 2**32 - 1
_DENSE = 2_000
"""Buckets from which a list adds up sketches quicker than a dict."""
_SWAPS = sys.byteorder == "big"

_NO_QUANTILES = Quantiles()


class LogSketch:
    """Counts of values by bucket."""

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = counts if counts is not None else {}

    @classmethod
    def of(cls, values: Iterable[float]) -> LogSketch:
        sketch = cls()
        for value in values:
            sketch.add(value)
        return sketch

    @classmethod
    def unpack(cls, packed: bytes | None) -> LogSketch:
        sketch = cls()
        if packed:
            sketch.merge_packed(packed)
        return sketch

    def add(self, value: float) -> None:
        index = bucket_of(value)
        self.counts[index] = self.counts.get(index, 0) + 1

    def merge(self, other: LogSketch) -> None:
        counts = self.counts
        if not counts:
            counts.update(other.counts)
            return
        for index, number in other.counts.items():
            counts[index] = counts.get(index, 0) + number

    def merge_packed(self, packed: bytes) -> None:
        half = len(packed) // 6
        indices, numbers = _read("h", packed[: 2 * half]), _read("I", packed[2 * half :])
        counts = self.counts
        if counts:
            for index, number in zip(indices, numbers, strict=True):
                counts[index] = counts.get(index, 0) + number
        else:
            counts.update(zip(indices, numbers, strict=True))

    def pack(self) -> bytes | None:
        """Pack the sketch into 6 bytes for each bucket, little-endian: all indices, then all counts; None if empty."""
        if not self.counts:
            return None
        indices, numbers = array("h", self.counts), array("I", (min(n, _MOST) for n in self.counts.values()))
        if _SWAPS:
            indices.byteswap()
            numbers.byteswap()
        return indices.tobytes() + numbers.tobytes()

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def quantiles(self, shares: Sequence[float]) -> list[float | None]:
        """Return the quantiles at these ascending shares, 0..1: of the sorted values the one at `share * (n - 1)`."""
        indices = sorted(self.counts)
        seen = list(accumulate(map(self.counts.__getitem__, indices)))
        if not seen:
            return [None] * len(shares)
        last = seen[-1] - 1
        return [value_of(indices[bisect_right(seen, math.floor(share * last))]) for share in shares]


class SketchSum:
    """Sum of packed sketches, which are added all at once when it is asked for."""

    __slots__ = ("_packed", "_sum")

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._sum = LogSketch()

    def add(self, packed: bytes | None) -> None:
        if packed:
            self._packed.append(packed)

    def plus(self, other: SketchSum) -> None:
        self._sum.merge(other.sketch())

    def usual_quantiles(self) -> Quantiles:
        if len(self._packed) == 1 and not self._sum.counts:
            return _of_packed(self._packed[0])
        return usual_quantiles(self.sketch())

    def sketch(self) -> LogSketch:
        packed, self._packed = self._packed, []
        if len(packed) > 1:
            indices = _read("h", b"".join([one[: len(one) // 3] for one in packed]))
            numbers = _read("I", b"".join([one[len(one) // 3 :] for one in packed]))
            self._sum.merge(LogSketch(_added(indices, numbers)))
        elif packed:
            self._sum.merge_packed(packed[0])
        return self._sum


def _added(indices: array[int], numbers: array[int]) -> dict[int, int]:
    if len(indices) >= _DENSE and min(indices) != ZERO:
        return _added_densely(indices, numbers)
    counts: dict[int, int] = {}
    for index, number in zip(indices, numbers, strict=True):
        counts[index] = counts.get(index, 0) + number
    return counts


def _added_densely(indices: array[int], numbers: array[int]) -> dict[int, int]:
    """Add counts by bucket in a list, which is quicker than a dict for many."""
    low = min(indices)
    dense = [0] * (max(indices) - low + 1)
    for index, number in zip(indices, numbers, strict=True):
        dense[index - low] += number
    return {index: number for index, number in enumerate(dense, low) if number}


def bucket_of(value: float) -> int:
    """Return the index of the bucket that holds the value; what is no number counts as zero."""
    if not value > SMALLEST:
        return ZERO
    return math.ceil(math.log(min(value, GREATEST)) * _PER_LOG)


def value_of(index: int) -> float:
    """Return the value that stands for a bucket: within ACCURACY of each of its values."""
    return 0.0 if index == ZERO else 2 * GAMMA**index / (GAMMA + 1)


def merge_packed(first: bytes | None, second: bytes | None) -> bytes | None:
    if not first or not second:
        return first or second
    sketch = LogSketch.unpack(first)
    sketch.merge_packed(second)
    return sketch.pack()


def usual_quantiles(sketch: LogSketch) -> Quantiles:
    if not sketch.counts:
        return _NO_QUANTILES
    p50, p90, p95, p99 = sketch.quantiles((0.5, 0.9, 0.95, 0.99))
    return Quantiles(count=sketch.count, p50=p50, p90=p90, p95=p95, p99=p99)


@lru_cache(maxsize=4096)
def _of_packed(packed: bytes) -> Quantiles:
    """Return the usual quantiles of a packed sketch; an hour of the past is asked for again and again."""
    return usual_quantiles(LogSketch.unpack(packed))


def _read(kind: str, data: bytes) -> array[int]:
    found: array[int] = array(kind)
    found.frombytes(data)
    if _SWAPS:
        found.byteswap()
    return found
