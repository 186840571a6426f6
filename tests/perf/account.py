"""The account of a soak with engines that hang: what came of each request, of each engine that was struck, of memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from told import is_wrong

GIB = 2**30
HEALTHY = "jit-first"
"""The fault that looks like a stuck engine and is none."""


@dataclass
class Strike:
    """One engine that was made to hang, and what the daemon made of it."""

    at: float
    profile: str
    fault: str
    ready_at: float = 0.0
    """Of the engine that was struck: another one has another."""
    left: bool = False
    """The engine was gone before it was named, for another profile's sake."""
    incident: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Does nothing of it go on?"""
        return self.left or (self.incident is not None and self.incident["ended_at"] is not None)

    def text(self, begun: float) -> str:
        """One line."""
        head = f"{(self.at - begun) / 60:6.1f} min  {self.profile:<6}{self.fault:<18}"
        seen = self.incident
        if seen is None:
            return f"{head}{'gone before it was named' if self.left else 'not named'}"
        named = f"named {seen['named_at'] - self.at:.0f} s after it began"
        if seen["ended_at"] is None:
            return f"{head}{named}, not ended"
        steps = " > ".join(step["step"] for step in seen["steps"])
        return f"{head}{named}, {seen['end']} after {seen['ended_at'] - self.at:.0f} s ({steps})"


@dataclass
class Account:
    """What came of everything."""

    begun: float = field(default_factory=time.time)
    sent: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    strikes: list[Strike] = field(default_factory=list)
    incidents: dict[str, dict[str, Any]] = field(default_factory=dict)
    lowest: float = float("inf")
    """GiB available on the simulated box."""
    mean_repair: dict[str, Any] | None = None
    late: int = 0
    """Strikes that found no engine to strike."""

    def text(self) -> str:
        """The whole account."""
        minutes = (time.time() - self.begun) / 60
        lines = [
            f"{minutes:.0f} minutes: {self.sent} requests sent, {self.ends.total()} over; longest {self.longest_s:.0f} s"
        ]
        lines += [f"  {count:7} {end}" for end, count in sorted(self.ends.items())]
        lines += [strike.text(self.begun) for strike in self.strikes]
        lines.append(f"memory of the simulated box: never under {self.lowest:.1f} GiB available")
        if self.mean_repair:
            lines.append(f"mean time to repair: {self.mean_repair['mean_s']:.0f} s over {self.mean_repair['n']}")
        return "\n".join(lines)

    def wrong(self) -> Iterator[str]:
        """What should not have been."""
        for end, count in self.ends.items():
            if is_wrong(end):
                yield f"{count} x {end}"
        if self.sent > self.ends.total():
            yield f"{self.sent - self.ends.total()} requests without an end"
        meant = {strike.incident["id"] for strike in self.strikes if strike.incident}
        for id_, incident in self.incidents.items():
            if id_ not in meant:
                yield f"{incident['profile']} was touched though nobody froze it: {incident['why']}"
        for strike in self.strikes:
            if strike.fault != HEALTHY and not strike.is_over:
                yield f"{strike.profile} with {strike.fault} was not repaired"


def note(account: Account, seen: dict[str, Any]) -> None:
    """Take what the daemon's snapshot says into the account."""
    memory = (seen.get("sample") or {}).get("memory") or {}
    account.lowest = min(account.lowest, memory.get("available", float("inf")) / GIB)
    account.mean_repair = seen.get("repairs", {}).get("every")
    for incident in seen.get("incidents", ()):
        account.incidents[incident["id"]] = incident
    for strike in account.strikes:
        engine = seen["engines"].get(strike.profile) or {}
        strike.left |= strike.incident is None and engine.get("ready_at") != strike.ready_at
    for found in sorted(account.incidents.values(), key=lambda incident: incident["named_at"]):
        before = [s for s in account.strikes if s.profile == found["profile"] and s.at <= found["named_at"]]
        if before and before[-1].fault != HEALTHY and before[-1].incident in (None, *_same(account, found)):
            before[-1].incident, before[-1].left = found, False


def _same(account: Account, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The older state of that incident."""
    return (s.incident for s in account.strikes if s.incident and s.incident["id"] == found["id"])
