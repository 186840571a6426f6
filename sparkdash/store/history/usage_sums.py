"""UsageSums: ended requests added up by hour, profile, client and key, until they are written.

Owns: what counts as a wait, an error, a request at all; how many clients an hour may have. Must not know the database:
the statement adds a sum to the row that is there.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparkdash.domain.history.sketch import LogSketch
from sparkdash.domain.lease import ASIDES, Request, RequestState
from sparkdash.store.history.tiers import HOUR_S

WAITED_S = 0.05
"""Time from arrival to the engine beyond which a request has waited."""
GROUPS = 200
"""Clients and keys of one hour that are told apart; further ones are added up as OTHER."""
OTHER = "other"
COLUMNS = (
    "start, profile, client, key, requests, errors, gone, prompt, cached, output, reasoning, energy_wh, waited, wait_s,"
    " waits, ttfts, rates"
)
_ADDED = ("requests", "errors", "gone", "prompt", "cached", "output", "reasoning", "waited", "wait_s")
_SKETCHES = ("waits", "ttfts", "rates")
_ENERGY = (
    "energy_wh = CASE WHEN excluded.energy_wh IS NULL THEN energy_wh"
    " ELSE coalesce(energy_wh, 0) + excluded.energy_wh END"
)
ADD = (
    f"INSERT INTO usage_hours ({COLUMNS}) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - constants
    " ON CONFLICT (start, profile, client, key) DO UPDATE SET "
    + ", ".join(
        [
            *(f"{name} = {name} + excluded.{name}" for name in _ADDED),
            _ENERGY,
            *(f"{name} = merge_sketch({name}, excluded.{name})" for name in _SKETCHES),
        ]
    )
)
"""Statement that adds a sum to its row."""
_ABSURD = 2**40
"""Implausible number of tokens of one request; SQLite's integers end at 2**63."""


class UsageKey(NamedTuple):
    """Group of requests: beginning of the hour, profile, client, key."""

    start: int
    profile: str
    client: str
    key: str


class UsageSum:
    """Sum of one group."""

    __slots__ = ("energy_wh", "numbers", "rates", "ttfts", "wait_s", "waited", "waits")

    def __init__(self) -> None:
        self.numbers = [0] * 7
        self.energy_wh: float | None = None
        self.waited = 0
        self.wait_s = 0.0
        self.waits, self.ttfts, self.rates = LogSketch(), LogSketch(), LogSketch()

    def add(self, request: Request) -> None:
        """Add one request."""
        tokens = (
            request.prompt_tokens, request.cached_tokens, request.completion_tokens, request.reasoning_tokens,
        )  # fmt: skip
        ended = (1, request.state is RequestState.FAILED, request.state is RequestState.GONE)
        for place, number in enumerate((*ended, *tokens)):
            if number and 0 < number < _ABSURD:
                self.numbers[place] += number
        if request.energy_wh is not None:
            self.energy_wh = (self.energy_wh or 0.0) + request.energy_wh
        if request.ttft_s is not None:
            self.ttfts.add(request.ttft_s)
        if request.decode_tok_s is not None:
            self.rates.add(request.decode_tok_s)
        wait = wait_of(request)
        if wait > WAITED_S:
            self.waited += 1
            self.wait_s += wait
            self.waits.add(wait)

    def row(self, key: UsageKey) -> tuple[object, ...]:
        """Return the row for ADD."""
        sketches = (sketch.pack() for sketch in (self.waits, self.ttfts, self.rates))
        return (*key, *self.numbers, self.energy_wh, self.waited, self.wait_s, *sketches)


class UsageSums:
    """Sums of the requests that are not written yet."""

    def __init__(self) -> None:
        self._sums: dict[UsageKey, UsageSum] = {}
        self._hour = 0
        self._known: set[tuple[str, str, str]] = set()
        """Groups of the running hour."""

    def add(self, request: Request) -> None:
        """Add an ended request; side requests, such as token counts, do not count."""
        if request.route in ASIDES:
            return
        ended = request.finished_at or request.started_at
        key = self._key(int(ended // HOUR_S) * HOUR_S, request)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = UsageSum()
        found.add(request)

    def take(self) -> list[tuple[str, tuple[object, ...]]]:
        """Take all sums as statements with their rows."""
        taken, self._sums = self._sums, {}
        return [(ADD, found.row(key)) for key, found in taken.items()]

    def _key(self, hour: int, request: Request) -> UsageKey:
        if hour != self._hour:
            self._hour, self._known = hour, set()
        group = request.profile, request.client, request.key or ""
        if group not in self._known:
            if len(self._known) >= GROUPS:
                profile = request.profile if any(known[0] == request.profile for known in self._known) else OTHER
                group = profile, OTHER, OTHER if request.key else ""
            self._known.add(group)
        return UsageKey(hour, *group)


def wait_of(request: Request) -> float:
    """Seconds from the arrival to the engine; of a request that never got one, to its end."""
    granted = request.granted_at or request.finished_at
    return max(granted - request.started_at, 0.0) if granted is not None else 0.0


def sums_of(requests: Iterable[Request]) -> list[tuple[str, tuple[object, ...]]]:
    """Add up requests of the past, as statements with their rows."""
    sums = UsageSums()
    for request in requests:
        sums.add(request)
    return sums.take()
