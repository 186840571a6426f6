"""Events: numbered facts. A snapshot plus every later event gives the present. Pure."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from sparkdash.domain.base import STRICT, Frozen, per_request
from sparkdash.domain.engine import Engine, Incident, Parked, Repairs
from sparkdash.domain.memory import Guard
from sparkdash.domain.metric import Sample
from sparkdash.domain.node import NodeState
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.request import Request
from sparkdash.domain.swap import DefaultProfile, Swap
from sparkdash.limits import COUNT, NAME, PRINTABLE, WORD

SILENT_S = 20.0
"""Silence after which a run counts as dead: it reports every 5 s, and its lease lapses after 15 s."""


class Measuring(Frozen):
    """Progress report of a bench run."""

    run: str = Field(max_length=NAME, pattern=PRINTABLE)
    doing: str = Field(max_length=WORD, pattern=PRINTABLE)
    """launching, settling or measuring."""
    arm: str = Field(max_length=NAME, pattern=PRINTABLE)
    cell: str | None = Field(default=None, max_length=NAME, pattern=PRINTABLE)
    """Label of the cell, such as `ctx=2K 150`; None while no cell is measured."""
    launch: int = Field(ge=0, le=COUNT)
    launches: int = Field(ge=0, le=COUNT)
    done: int = Field(ge=0, le=COUNT)
    """Measured cells of all launches, out of `cells`."""
    cells: int = Field(ge=0, le=COUNT)
    share: float = Field(ge=0, le=1)
    """Share of all work, by tokens."""
    left_s: float | None = Field(default=None, ge=0)
    at: float = 0.0
    """Time of the report by the daemon's clock, Unix seconds."""
    ends: bool = False
    """Whether the run was asked to stop and will do so at its next report."""

    def lives(self, now: float) -> bool:
        """Whether the last report is recent enough at `now` (Unix seconds of the daemon)."""
        return now - self.at < SILENT_S


class Level(StrEnum):
    """Severity of a notice."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EngineChanged(Frozen):
    """An engine entered a state, made progress, or failed. State `absent` removes it."""

    kind: Literal["engine"] = "engine"
    engine: Engine


class SwapChanged(Frozen):
    """A swap began, moved on, or ended (then `ended_at` and `outcome` are set)."""

    kind: Literal["swap"] = "swap"
    swap: Swap


@per_request
class RequestChanged:
    """A request arrived, was granted, began to stream, or ended."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    request: Request
    kind: Literal["request"] = "request"


class SampleTaken(Frozen):
    """Telemetry was sampled. The one event that a newer one may replace."""

    kind: Literal["sample"] = "sample"
    sample: Sample


class ProfilesChanged(Frozen):
    """The catalog was read again; all its profiles. `problems` are the files that could not be read."""

    kind: Literal["profiles"] = "profiles"
    profiles: tuple[ProfileSummary, ...]
    problems: tuple[str, ...] = ()


class ToggleChanged(Frozen):
    """The pair of profiles that the A/B key flips between has changed."""

    kind: Literal["toggle"] = "toggle"
    a: str | None
    b: str | None


class GuardChanged(Frozen):
    """The memory guard began, entered another level, or killed an engine."""

    kind: Literal["guard"] = "guard"
    guard: Guard


class ParkedChanged(Frozen):
    """A profile was parked or released; all parked profiles by name."""

    kind: Literal["parked"] = "parked"
    parked: dict[str, Parked]


class UnadoptedChanged(Frozen):
    """Engines of an earlier daemon whose profiles are missing or cannot be read; the complete list, by profile."""

    kind: Literal["unadopted"] = "unadopted"
    profiles: tuple[str, ...]


class IncidentsChanged(Frozen):
    """An engine stood still, its repair went on, or it ended; the newest incidents, and the mean time to repair."""

    kind: Literal["incidents"] = "incidents"
    incidents: tuple[Incident, ...]
    repairs: Repairs


class MeasuringChanged(Frozen):
    """A run of the bench went on, or ended (None)."""

    kind: Literal["measuring"] = "measuring"
    measuring: Measuring | None


class NodesChanged(Frozen):
    """Another node was added or removed, or can be reached again or no longer; all other nodes by name."""

    kind: Literal["nodes"] = "nodes"
    nodes: dict[str, NodeState]


class DefaultChanged(Frozen):
    """The owner set another profile to return to, or none."""

    kind: Literal["default"] = "default"
    default: DefaultProfile | None


class Notice(Frozen):
    """Message for a person: a refused start, telemetry restarted, a foreign container."""

    kind: Literal["notice"] = "notice"
    level: Level
    code: str
    text: str
    profile: str | None = None
    at: float | None = None
    """Time of the notice's event, kept in the snapshot; Unix seconds."""


class Withheld(Frozen):
    """Placeholder for a fact that this reader may not see.

    Keeps the numbers of facts gapless; changes nothing; never published.
    """

    kind: Literal["withheld"] = "withheld"


Fact = Annotated[
    EngineChanged
    | SwapChanged
    | RequestChanged
    | SampleTaken
    | ProfilesChanged
    | ToggleChanged
    | GuardChanged
    | ParkedChanged
    | UnadoptedChanged
    | IncidentsChanged
    | MeasuringChanged
    | NodesChanged
    | DefaultChanged
    | Notice
    | Withheld,
    Field(discriminator="kind"),
]


@per_request
class Event:
    """A fact with its place in the journal."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    seq: int
    at: float
    """Unix seconds."""
    fact: Fact


EVENT = TypeAdapter(Event)
"""The codec: `EVENT.validate_json(line)`, `EVENT.dump_json(event)`."""
