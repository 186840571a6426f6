"""Moves and effects: the scheduler's inputs and outputs.

A move is imperative or past tense (what came in); an effect is an order to the actor (what must be done). Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkdash.domain.base import per_request
from sparkdash.domain.cluster import Topology
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Task
from sparkdash.domain.swap import DefaultProfile, SwapCause
from sparkdash.errors import SparkdashError

STUCK = "engine_stuck"
"""Code of what a stuck engine costs: requests that are cut, and its death once it was ended for that."""


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """All that decisions need of a profile."""

    fingerprint: str
    managed: bool = True
    """False: the engine is someone else's; it takes no place and is never evicted."""
    loads_alone: bool = False
    """Whether the engine sizes itself by free memory while it loads, so that nothing else may take memory meanwhile."""
    counts: tuple[int, ...] = (1,)
    """Numbers of nodes that one engine may run on, the largest first."""
    node: str | None = None
    topologies: tuple[Topology, ...] = ()
    fallbacks: tuple[str, ...] = ()
    cannot_run: str | None = None
    nearest: str | None = None
    secret_at: str | None = None
    """Place of a secret in the profile's file, whose rule is not silenced: the profile is not started."""
    pinned: bool = False
    """Only a person evicts the engine."""
    idle_ttl_s: float | None = None
    limit: int | None = None
    """Requests that it serves at once, those that wait for it counted; None: as many as come."""
    autocomplete: bool = False
    """Whether each request for it counts as autocomplete."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The owner's limits for waiting, in seconds, and the share of its load time that an engine serves at least."""

    min_dwell_s: float = 0.0
    """0: no dwell at all, whatever the share."""
    max_wait_s: float = float("inf")
    min_dwell_share: float = 0.0


@per_request
class Arrive:
    """A request wants an engine. `profile` None means `auto`: one that runs, never a swap."""

    id: str
    profile: str | None
    batch: bool = False
    """Whether requests of people and agents go first."""
    task: Task | None = None
    client: str | None = None
    autocomplete: bool = False
    """Whether it is worth an answer at once or none: it evicts nobody and never waits."""


@dataclass(frozen=True, slots=True)
class Leave:
    """A request is over, or its client is gone; waiting or granted, known or not."""

    id: str


@dataclass(frozen=True, slots=True)
class Use:
    """A person wants this profile resident. It takes a place in the queue; a newer one replaces it there."""

    profile: str
    cause: SwapCause


@dataclass(frozen=True, slots=True)
class Preload:
    """Load these profiles before anybody asks, in this order, as far as they fit beside running engines."""

    profiles: tuple[str, ...]
    cause: SwapCause = SwapCause.PRELOAD


@dataclass(frozen=True, slots=True)
class Stop:
    """A person wants this profile's engine gone; None means all of them."""

    profile: str | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """A person cancels the swaps under way."""


@dataclass(frozen=True, slots=True)
class Release:
    """Forget the failures of this profile, or of every one (None): their cause has been fixed."""

    profile: str | None


@dataclass(frozen=True, slots=True)
class CatalogRead:
    """The profiles were read again."""

    profiles: Mapping[str, ProfileFacts]


@dataclass(frozen=True, slots=True)
class PolicyRead:
    """The owner changed the patience, the queue limit or the profile to return to."""

    patience: Patience
    queue_limit: int
    default: DefaultProfile | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """An engine of an earlier daemon runs and answers; or, not `ready`, is still coming up."""

    profile: str
    fingerprint: str
    ready: bool = True
    nodes: tuple[str, ...] = (LOCAL,)


@dataclass(frozen=True, slots=True)
class EngineDied:
    """A resident engine is no longer there."""

    profile: str
    error: SparkdashError


@dataclass(frozen=True, slots=True)
class EngineHeld:
    """A resident engine is stuck: its work does not move. It serves nobody until it recovers or is replaced."""

    profile: str
    error: SparkdashError
    """Reason for the requests that are cut; its code is STUCK."""


@dataclass(frozen=True, slots=True)
class EngineRecovered:
    """A stuck engine moves again, and serves."""

    profile: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time itself changes a decision now."""


@dataclass(frozen=True, slots=True)
class Copied:
    """All nodes have what the swap to `target` needs there: the drain may begin."""

    target: str


@dataclass(frozen=True, slots=True)
class DrainOver:
    """The drain of the swap to `target` exceeded its limit."""

    target: str | None


@dataclass(frozen=True, slots=True)
class Evicted:
    """An engine was stopped and removed."""

    profile: str


@dataclass(frozen=True, slots=True)
class WontStop:
    """An engine was told to go and is still there: no longer good for requests, still in the way."""

    profile: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The swap to `target` may take memory: all evicted engines have given theirs back, and there is room."""

    target: str


@dataclass(frozen=True, slots=True)
class SwapDone:
    """The swap to `target` succeeded; here and below None is the swap that only stops."""

    target: str | None


@dataclass(frozen=True, slots=True)
class SwapFailed:
    """The swap to `target` failed, with the reason for every waiting request."""

    target: str | None
    error: SparkdashError


@dataclass(frozen=True, slots=True)
class SwapCancelled:
    """The swap to `target` was cancelled, and what it began is cleaned away."""

    target: str | None


Move = (
    Arrive | Leave | Use | Preload | Stop | Cancel | Release | CatalogRead | PolicyRead | Tick
    | Adopted | EngineDied | EngineHeld | EngineRecovered
    | Copied | DrainOver | Evicted | WontStop | Admitted | SwapDone | SwapFailed | SwapCancelled
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grant:
    """Let this request use the profile's engine now."""

    id: str
    profile: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Engines in use that a request does not interrupt yet, and until when at the latest, monotonic seconds."""

    by: tuple[str, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Tell this request its new place in the queue, 1 is next, and who holds it off."""

    id: str
    position: int
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse this request."""

    id: str
    error: SparkdashError


@dataclass(frozen=True, slots=True)
class BeginSwap:
    """Start a change of residents. Nothing may be stopped before `Evict`. `target` None: only stop."""

    target: str | None
    evict: tuple[str, ...]
    cause: SwapCause
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)
    nodes: tuple[str, ...] = field(default=(), compare=False)
    """Nodes for the target, the serving one first; empty without a target, and for one that is not ours."""
    copies: bool = field(default=False, compare=False)
    """Whether the evicted engines serve on until `Copied`: other nodes may lack what the target needs."""
    as_before: bool = False
    """Whether the target starts as it ran before its profile was edited."""


@dataclass(frozen=True, slots=True)
class Decline:
    """Report that something no request waits for is not done: a person's wish, a preload."""

    profile: str
    error: SparkdashError


@dataclass(frozen=True, slots=True)
class Evict:
    """Stop these engines for the swap to `target`: no lease holds them any more."""

    target: str | None
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CancelSwap:
    """Cancel the swap to `target` and clean up; answered by SwapCancelled, or by SwapDone if it was too late."""

    target: str | None


@dataclass(frozen=True, slots=True)
class Cut:
    """End these leases against their holders' wish."""

    ids: tuple[str, ...]
    error: SparkdashError


Effect = Grant | Wait | Refuse | Decline | BeginSwap | Evict | CancelSwap | Cut
