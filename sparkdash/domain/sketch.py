"""LogSketch: quantiles of many values within 1 %, added up in any order (DDSketch, VLDB 2019). Pure."""

import math
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


class LogSketch:
    """Counts of values by bucket."""

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = counts if counts is not None else {}

    @classmethod
    def of(cls, values: Iterable[float]) -> "LogSketch":
        sketch = cls()
        for value in values:
            sketch.add(value)
        return sketch

    @classmethod
    def unpack(cls, packed: bytes | None) -> "LogSketch":
        sketch = cls()
        if packed:
            sketch.merge_packed(packed)
        return sketch

    def add(self, value: float) -> None:
        index = bucket_of(value)
        self.counts[index] = self.counts.get(index, 0) + 1

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
    """Sum of packed sketches, as an aggregate function of SQLite: they are added all at once."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []

    def step(self, packed: bytes | None) -> None:
        if packed:
            self._packed.append(packed)

    def finalize(self) -> bytes | None:
        if len(self._packed) < 2:
            return self._packed[0] if self._packed else None
        indices = _read("h", b"".join([one[: len(one) // 3] for one in self._packed]))
        numbers = _read("I", b"".join([one[len(one) // 3 :] for one in self._packed]))
        counts: dict[int, int] = {}
        for index, number in zip(indices, numbers, strict=True):
            counts[index] = counts.get(index, 0) + number
        return LogSketch(counts).pack()


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


@lru_cache(maxsize=4096)
def usual_quantiles(packed: bytes | None) -> Quantiles:
    """Return the usual quantiles of a packed sketch; an hour of the past is asked for again and again."""
    sketch = LogSketch.unpack(packed)
    if not sketch.counts:
        return Quantiles()
    p50, p90, p95, p99 = sketch.quantiles((0.5, 0.9, 0.95, 0.99))
    return Quantiles(count=sketch.count, p50=p50, p90=p90, p95=p95, p99=p99)


def _read(kind: str, data: bytes) -> "array[int]":
    found: array[int] = array(kind)
    found.frombytes(data)
    return found
