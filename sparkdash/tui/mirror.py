"""The terminal's copy of the daemon's state, and the View that panels draw.

Rule: the state changes through `domain.state.apply` only.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Event, Measuring, SampleTaken
from sparkdash.domain.metric import STALE_S, EngineSample, Sample
from sparkdash.domain.node import LOCAL, NodeState
from sparkdash.domain.phrases import boxes_text
from sparkdash.domain.request import Request
from sparkdash.domain.state import Snapshot, apply
from sparkdash.domain.swap import Swap
from sparkdash.errors import SparkdashError
from sparkdash.tui.choices import HeroChoice
from sparkdash.tui.first_run import IdleBox
from sparkdash.tui.history import FigureHistory
from sparkdash.tui.layout import Arrangement

if TYPE_CHECKING:
    from sparkdash.domain.history import RecentFigures


@dataclass(frozen=True, slots=True)
class Disconnected:
    """State of the feed while the connection is lost; the next item ends it."""


@dataclass(frozen=True, slots=True)
class RecordedPast:
    """Records of the last minutes: the figures of sparklines, and the memory."""

    figures: "RecentFigures"
    memory: "RecentFigures"


Item = Snapshot | Event | Disconnected


SKEW_S = 2.0
"""Clock offsets up to this count as zero; beyond it (over ssh) the daemon's own time is used."""
SAID_S = 8.0


class ConnectionState(StrEnum):
    """State of the connection to the daemon."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost"
    REFUSED = "refused"
    """Answered by something other than a daemon of this version; retrying at once will not help."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Short answer to a key, shown on the notice row."""

    text: str
    at: float
    bad: bool = False


@dataclass(frozen=True)
class View:
    """Snapshot of everything that panels draw. `now` is the daemon's clock, `here` this terminal's; Unix seconds."""

    now: float
    here: float
    snapshot: Snapshot | None = None
    connection: ConnectionState = ConnectionState.CONNECTING
    connection_since: float = 0.0
    address: str = ""
    refusal: SparkdashError | None = None
    history: FigureHistory = field(default_factory=FigureHistory)
    feedback: Feedback | None = None
    idle: IdleBox = field(default_factory=IdleBox)
    chosen: str | None = None
    hero: HeroChoice = field(default_factory=HeroChoice)
    arrangement: Arrangement = Arrangement.ALL

    @cached_property
    def profile_names(self) -> frozenset[str]:
        if self.snapshot is None:
            return frozenset()
        return frozenset((*(one.name for one in self.snapshot.profiles), *self.snapshot.engines))

    @cached_property
    def engine(self) -> Engine | None:
        """The engine on the card: the chosen one, else the one that `auto` means, else a starting or failed one."""
        if self.snapshot is None:
            return None
        chosen = self.snapshot.engines.get(self.chosen or "")
        first = min(self.snapshot.engines.values(), key=lambda one: _INTEREST.get(one.state, 9), default=None)
        return chosen or self.snapshot.active or first

    @cached_property
    def large_swap(self) -> Swap | None:
        """The swap that takes the card: one of the engine on it, or any while no engine serves."""
        engine = self.engine
        mine = next((one for one in self.swaps if engine and engine.profile in (one.target, *one.evict)), None)
        return mine if engine and engine.state in SERVING else mine or self.swap

    @property
    def known_at(self) -> float:
        """Time of the daemon's clock up to which its state is known: now, or when the connection was lost."""
        is_live = self.connection is ConnectionState.LIVE
        return self.now if is_live else self.now - max(self.here - self.connection_since, 0.0)

    @property
    def swap(self) -> Swap | None:
        """The swap under way; the oldest of several."""
        return self.snapshot.swap if self.snapshot else None

    @property
    def swaps(self) -> tuple[Swap, ...]:
        return self.snapshot.swaps_under_way if self.snapshot else ()

    @property
    def sample(self) -> Sample | None:
        return self.snapshot.sample if self.snapshot else None

    @property
    def nodes(self) -> dict[str, NodeState]:
        return self.snapshot.nodes if self.snapshot else {}

    def boxes(self, nodes: tuple[str, ...]) -> str:
        """Name the boxes that an engine runs on ("spark-1 + spark2"); empty with this box alone."""
        if not self.snapshot or (not self.nodes and nodes == (LOCAL,)):
            return ""
        return boxes_text(nodes, self.snapshot.daemon.host)

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        return (*self.snapshot.requests.values(), *self.snapshot.recent) if self.snapshot else ()

    @property
    def measuring(self) -> Measuring | None:
        """The measurement under way; None when its process has fallen silent."""
        found = self.snapshot.measuring if self.snapshot else None
        return found if found is not None and found.lives(self.now) else None

    @property
    def simulated(self) -> bool:
        return self.snapshot is not None and self.snapshot.daemon.simulated

    @property
    def sample_age_s(self) -> float | None:
        """Age of the latest sample once it is stale; else None."""
        return self._stale(self.sample.at) if self.sample else None

    def engine_sample(self, profile: str) -> EngineSample | None:
        return self.sample.engines.get(profile) if self.sample else None

    def engine_age_s(self, profile: str) -> float | None:
        sample = self.engine_sample(profile)
        return self._stale(sample.at) if sample else None

    def node_age_s(self, node: str) -> float | None:
        found = self.sample.nodes.get(node) if self.sample else None
        return self._stale(found.at) if found else None

    def _stale(self, at: float) -> float | None:
        age = max(self.now - at, 0.0)
        return age if age > STALE_S or self.connection is not ConnectionState.LIVE else None


SERVING = frozenset({EngineState.READY, EngineState.DRAINING})
_INTEREST = {EngineState.WARMING: 0, EngineState.LOADING: 1, EngineState.CREATING: 2, EngineState.STOPPING: 3}


class Mirror:
    """Folds the feed into the latest view. `clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float], address: str = "") -> None:
        self._clock = clock
        self._leads: deque[float] = deque(maxlen=30)
        now = clock()
        self.latest = View(now, now, connection_since=now, address=address)
        """View of the latest change; `view` gives it the time of now."""

    def fold(self, item: Item) -> bool:
        """Fold one item; return False when an event is missing and the feed must be reopened for a snapshot."""
        if isinstance(item, Disconnected):
            self._set_connection(ConnectionState.LOST if self.latest.snapshot else ConnectionState.CONNECTING)
            return True
        self._set_connection(ConnectionState.LIVE)
        if isinstance(item, Event):
            return self._apply_event(item)
        self.latest = replace(self.latest, snapshot=item)
        if item.sample:
            self.latest.history.add(item.sample)
        return True

    def refuse(self, error: SparkdashError) -> None:
        self.latest = replace(self.latest, refusal=error)
        self._set_connection(ConnectionState.REFUSED)

    def recall(self, past: RecordedPast) -> None:
        history, sample = self.latest.history, self.latest.sample
        history.recall(past.figures)
        if sample and sample.memory:
            history.recall_memory(past.memory, sample.memory)

    def say(self, text: str, *, bad: bool = False) -> None:
        self.latest = replace(self.latest, feedback=Feedback(text, self._clock(), bad))

    def view(self) -> View:
        here, said = self._clock(), self.latest.feedback
        lead = max(self._leads, default=0.0)  # events arrive late, never early: the greatest is the truest
        now = here + (lead if abs(lead) > SKEW_S else 0.0)
        return replace(self.latest, now=now, here=here, feedback=said if said and here - said.at < SAID_S else None)

    def _set_connection(self, state: ConnectionState) -> None:
        if state is not self.latest.connection:
            self.latest = replace(self.latest, connection=state, connection_since=self._clock())

    def _apply_event(self, event: Event) -> bool:
        if self.latest.snapshot is None:
            return False
        try:
            self.latest = replace(self.latest, snapshot=apply(self.latest.snapshot, event))
        except ValueError:
            return False
        self._leads.append(event.at - self._clock())
        if isinstance(event.fact, SampleTaken):
            self.latest.history.add(event.fact.sample)
        return True
