"""Breaker: profiles that are not tried for now, or not until a person says so, and why.

Each start evicts other engines and takes minutes; clients re-post within seconds; restart loops have leaked driver
memory until boxes died. Therefore:
* After a failure a profile rests for two minutes: it is refused at once, with the reason. There is no Retry-After:
  agents obey that, and one prompt would cost a second load.
* It is parked by its second failure within ten minutes, deaths included; by a second start that fails for the same
  reason, however much later; and at once where no try can help (an unknown flag, another machine's image).
* An engine that is stuck, and was ended for that, counts as a death. Besides, it is parked when that happens more than
  three times within an hour: each costs minutes, and some GPU drivers leak memory at each.
* A failure of the box that passes (memory, a runtime that hangs, a full disk) parks nobody: the rest doubles instead,
  unless the failure itself says when to come back. What the box lacks (an image, weights, a port) rests for two
  seconds: a start looks for it before it evicts anybody, and goes on as soon as it is there.
* `release`, an edit that changes the launch, and a pulled image end the parking. A person's `use` is one more try: if
  it fails, the profile is parked again at once. Pure.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkdash.errors import SparkdashError
from sparkdash.supervisor.decide.moves import STUCK
from sparkdash.units import duration

REST_S = 120.0
"""Longer than a client repeats a prompt: aider does so for 64 s after a stream's error."""
WITHIN_S = 600.0
"""Two failures within this park; it is also the longest rest."""

SERVER_AGAIN_S = 2.0
"""Time after which a server that sparkdash does not start is asked again whether it answers."""
LOOKED_S = 2.0
"""Rest after a failure that a start sees before it evicts anybody, so that clients that re-post cost little."""

STUCK_WITHIN_S = 3600.0
MOST_STUCK = 3
"""An engine that is stuck more often than this within `STUCK_WITHIN_S` is parked."""

PERMANENT = frozenset({"unknown_flag", "wrong_arch"})
"""Failures that only an edit of the profile or another image fixes."""
PASSING = frozenset(
    {
        "container_removed", "disk_full", "does_not_fit", "engine_unreachable", "fragmented", "host_not_ready",
        "host_key_changed", "host_key_unknown", "link_down", "memory_guard", "memory_low", "memory_not_returned",
        "memory_wedging", "no_common_link", "node_login_refused", "node_restarted", "node_unknown",
        "node_unreachable", "rank_held", "runtime_killed", "runtime_missing", "runtime_timeout", "shutting_down",
        "unkillable",
    }
)  # fmt: skip

LACKING = frozenset(
    {
        "cdi_stale", "image_missing", "mount_missing", "name_taken", "no_gpu_device", "port_in_use", "weights_missing",
    }
)  # fmt: skip
"""Failures for want of something on the box: nobody need say that it is fixed."""

_CHANGING = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True, slots=True)
class ParkedFailure:
    """Last failure of a profile that is not started until it is released."""

    error: SparkdashError
    failures: int
    fingerprint: str = ""


@dataclass(slots=True)
class _Record:
    fingerprint: str
    error: SparkdashError
    rest_until: float = 0.0
    passing: int = 0
    failed_at: list[float] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    stuck_at: list[float] = field(default_factory=list)
    """Deaths of engines that were stuck, of the last hour."""
    reasons: set[str] = field(default_factory=set)
    parked: bool = False
    earlier: int = 0
    """Failures that another daemon counted."""

    @property
    def failures(self) -> int:
        stuck = len(self.stuck_at) if len(self.stuck_at) > MOST_STUCK else 0
        return max(1, self.earlier, len(self.failed_at), stuck)


class Breaker:
    """Hand it what happened; ask it before a start. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    @property
    def parked(self) -> dict[str, ParkedFailure]:
        return {
            name: ParkedFailure(record.error, record.failures, record.fingerprint)
            for name, record in self._records.items()
            if record.parked
        }

    def recall(self, profile: str, parked: ParkedFailure) -> None:
        """An earlier daemon parked it: a restart fixes nothing."""
        record = _Record(parked.fingerprint, parked.error, parked=True, earlier=parked.failures)
        record.reasons.add(_reason(parked.error))
        self._records[profile] = record

    def failed(
        self, profile: str, fingerprint: str, error: SparkdashError, now: float, *, evicted: bool = True
    ) -> None:
        """Record a failed start. `evicted`: engines were stopped for it."""
        record = self._record(profile, fingerprint, error)
        if error.code in LACKING and not evicted:
            record.rest_until = now + LOOKED_S
            return
        if error.code in PASSING | LACKING:
            record.passing += 1
            record.rest_until = now + (error.retry_after or min(REST_S * 2 ** (record.passing - 1), WITHIN_S))
            return
        again = _reason(error) in record.reasons
        record.reasons.add(_reason(error))
        self._count(record, now)
        record.rest_until = now + REST_S
        record.parked |= again or error.code in PERMANENT

    def died(self, profile: str, fingerprint: str, error: SparkdashError, now: float) -> None:
        """Record the death of an engine that ran; after the guard's kill the profile rests."""
        if error.code in ("memory_guard", "memory_wedging"):
            self.failed(profile, fingerprint, error, now)
        elif error.code not in PASSING:
            record = self._record(profile, fingerprint, error)
            self._count(record, now)
            record.deaths.append(now)
            if error.code == STUCK:
                record.stuck_at = [at for at in record.stuck_at if now - at < STUCK_WITHIN_S] + [now]
                record.parked |= len(record.stuck_at) > MOST_STUCK

    def came_up(self, profile: str) -> None:
        """Forget failed starts, as the engine runs. Deaths still count for their ten minutes or hour."""
        record = self._records.pop(profile, None)
        if record and (record.deaths or record.stuck_at):
            kept = _Record(record.fingerprint, record.error, failed_at=record.deaths, deaths=record.deaths.copy())
            kept.stuck_at = record.stuck_at
            self._records[profile] = kept

    def tried_again(self, profile: str) -> None:
        """A person wants it in spite of all; what it failed for stays known."""
        if record := self._records.get(profile):
            record.parked, record.rest_until = False, 0.0

    def release(self, profile: str | None) -> None:
        for name in [profile] if profile is not None else list(self._records):
            self._records.pop(name, None)

    def read(self, fingerprints: Mapping[str, str]) -> None:
        """Forget edited profiles and end every rest: an edit of a declared need may be the fix too."""
        for name, record in list(self._records.items()):
            if fingerprints.get(name) != record.fingerprint:
                del self._records[name]
            else:
                record.rest_until = 0.0

    def refusal(self, profile: str, now: float, *, managed: bool = True) -> SparkdashError | None:
        """Why it is not started now; None when it may be tried. Its code is that of the failure.

        A server that is not `managed` comes and goes by itself, and is asked again while somebody wants it.
        """
        record = self._records.get(profile)
        if record is None:
            return None
        if not managed and (record.parked or now < record.rest_until):
            refusal = copy.copy(record.error)
            refusal.retry_after = SERVER_AGAIN_S
            return refusal
        if record.parked:
            return _parked(profile, record.error, record.failures)
        if now >= record.rest_until:
            return None
        return _resting(profile, record.error, record.rest_until - now)

    def _record(self, profile: str, fingerprint: str, error: SparkdashError) -> _Record:
        record = self._records.get(profile)
        if record is None or record.fingerprint != fingerprint:
            record = self._records[profile] = _Record(fingerprint, error)
        record.error = error
        return record

    def _count(self, record: _Record, now: float) -> None:
        record.passing = 0
        record.failed_at = [at for at in record.failed_at if now - at < WITHIN_S] + [now]
        record.deaths = [at for at in record.deaths if now - at < WITHIN_S]
        record.parked |= len(record.failed_at) > 1


def _reason(error: SparkdashError) -> str:
    return error.code if error.code != "engine_crash" else _CHANGING.sub("", error.message)


def _resting(profile: str, error: SparkdashError, left_s: float) -> SparkdashError:
    """Copy the failure for the next client, with what is left of the failure's own time."""
    refusal = copy.copy(error)
    if error.retry_after is not None:
        refusal.retry_after = left_s
        return refusal
    fix = f"{error.hint} " if error.hint else ""
    refusal.hint = (
        f"{fix}No request starts {profile} for another {duration(left_s)}; `sparkdash use {profile}` starts it now."
    )
    return refusal


def _parked(profile: str, error: SparkdashError, failures: int) -> SparkdashError:
    refusal = copy.copy(error)
    once = "since no try helps" if error.code in PERMANENT else "as it failed for the same reason again"
    why = f"after {failures} failures within {duration(WITHIN_S)}" if failures > 1 else once
    if error.code == STUCK and failures > MOST_STUCK:
        why = f"after it was stuck {failures} times within an hour"
    refusal.message = f"{profile} is parked {why}: {error.message}"
    fix = f"{error.hint} " if error.hint else ""
    refusal.hint = f"{fix}Then `sparkdash status --release {profile}`; an edit of its launch releases it too."
    refusal.retry_after = None
    refusal.args = (refusal.message,)
    return refusal
