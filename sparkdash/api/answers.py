"""Answer models of the control API that are no domain values; keys that a newer daemon added are ignored. Pure."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from sparkdash.domain.profile import ProfileSummary


class ApiAnswer(BaseModel):
    """Answer of one call."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Done(ApiAnswer):
    """The order was carried out, or is under way; the feed tells of it."""

    ok: bool = True


class ProfileList(ApiAnswer):
    """Catalog: all profiles, and the problems of the files that were left out."""

    profiles: tuple[ProfileSummary, ...]
    problems: tuple[str, ...]


class TogglePair(ApiAnswer):
    """The A and the B profile. `active` runs or is coming up, and may be neither of them."""

    a: str | None
    b: str | None
    active: str | None


class LeaseGranted(ApiAnswer):
    """Lease of the gateway. Every request of the holder carries the token in the header `x-sparkdash-lease`."""

    token: str
    ttl_s: float
    """Seconds after which the lease lapses unless it is renewed."""
    ends: bool = False
    """The holder was asked to stop and to give the lease back."""


class Setting(ApiAnswer):
    """Setting of config.toml, with its values as TOML texts."""

    name: str
    value: str
    default: str
    meaning: str
    given: bool = False
    """Whether config.toml, a variable or an option gives the value."""
    live: bool = False
    """Whether a change holds at once; otherwise after a restart of the daemon."""
    waits: str | None = None
    """Value that will hold after a restart of the daemon; None where it is the value in force."""
    editable: bool = True
    """Whether a single text can express the value; tables are edited in the file."""


class SettingList(ApiAnswer):
    """Every setting, in the order of the documentation."""

    file: str
    settings: tuple[Setting, ...]
    pinned: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()


class SuiteLine(ApiAnswer):
    """A suite that can be measured."""

    name: str
    about: str
    cells: int


class PlannedArm(ApiAnswer):
    """Profile of a planned run, with its known speed."""

    name: str
    impossible: str | None = None
    """Why it cannot run; None when it can."""
    launch_s: float | None = None
    decode_tok_s: float | None = None
    source: str | None = None
    """Origin of the rate: seen here, or published."""
    estimated: bool = False
    """Whether rate or start is an estimate that nobody measured on this profile."""


class BenchPlan(ApiAnswer):
    """Plan of a bench run: what it measures, for how long, and what it stops."""

    suite: str
    about: str
    mode: str
    arms: tuple[PlannedArm, ...]
    order: tuple[str, ...]
    """Arm of each launch that is left, in order. Each new run draws its own."""
    cells: int
    gaps: int
    """Cells that are left to measure, over all launches."""
    expected_s: float | None
    """Expected duration; None until an engine's speed and start time are known."""
    note: str | None = None
    """Sentence on what so few prompts can show of speculation; None where it does not matter."""
    resumes: str | None = None
    """Stopped run with the same question, which goes on; None: a new run."""
    stops: tuple[str, ...] = ()
    simulated: bool = False
    suites: tuple[SuiteLine, ...] = ()
    begun: bool = False


class CapturedText(ApiAnswer):
    """A captured request and the text of its answer, without what looked like a secret."""

    request: str
    body: JsonValue
    """The JSON document; null where only its length was kept."""
    answer: str | None
    """Whole answer; None where it broke off, was too long, or came before answers were kept."""


class GatewayHealth(ApiAnswer):
    """The gateway is up, whatever the state of its engines."""

    status: Literal["ok"] = "ok"


class ErrorBody(BaseModel):
    """Description of an error, and what to do."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    message: str
    type: str
    param: str | None
    code: str
    hint: str | None
    src: str


class ErrorEnvelope(BaseModel):
    """Body of every error."""

    model_config = ConfigDict(defer_build=True)

    error: ErrorBody
