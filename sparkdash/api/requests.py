"""Request models of the control API: what each call takes in its path, its query or its body. Pure."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sparkdash.domain.event import Measuring
from sparkdash.domain.history import MOST_POINTS, MOST_ROWS, RequestOrder, UsageGroup
from sparkdash.limits import COUNT, NAME, PRINTABLE, WORD

Cause = Literal["user", "bench"]
"""Party for which a profile is brought up."""
POINTS = 300
STATUS = r"^(done|failed|gone|[1-5][0-9]{2})$"
BenchModeName = Literal["screen", "standard", "careful"]
SUITE_NAME = r"^[a-z0-9][a-z0-9_-]{0,63}$"
"""Names of suites. A path is no name: a caller must not choose a file of the box."""


class ApiRequest(BaseModel):
    """Parameters of one call. Keys that it does not know are refused, and types are not converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class NoParameters(ApiRequest):
    """No parameters: the body of a POST is `{}`."""


class ProfileName(ApiRequest):
    """Name or alias of one profile."""

    name: str


class RunName(ApiRequest):
    """Name of one measured run."""

    run: str


class RequestId(ApiRequest):
    """Id of one request, as the feed gives it."""

    request_id: str


LATEST = 1e11
"""Latest time that is accepted: the year 5138."""
Names = Annotated[list[str] | None, BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
"""Parameter that may be repeated in a query."""
Since = Annotated[float | None, Field(ge=0, le=LATEST, description="Beginning, Unix seconds")]
Until = Annotated[float | None, Field(ge=0, le=LATEST, description="End, Unix seconds; else now")]
OfProfile = Annotated[str | None, Field(max_length=NAME, description="Only this profile, by its full name")]
OfClient = Annotated[str | None, Field(max_length=NAME, description="Only this client")]


class FeedPosition(ApiRequest):
    """Number of the last event that the listener has; without it the feed begins with a snapshot."""

    since: int | None = Field(default=None, ge=0, description="Go on after this event")


class IncidentQuery(ApiRequest):
    """Profile whose incidents are listed (without it: all profiles), and the most that are listed."""

    profile: str | None = Field(default=None, description="Only those of this profile, by name or alias")
    limit: int = Field(default=100, ge=1, le=COUNT, description="At most so many")


class DoctorQuery(ApiRequest):
    """Names of the checks to run; without names all of them run."""

    check: Names = Field(default=None, description="Only these checks; may be repeated")


class SeriesQuery(ApiRequest):
    """Figure of a profile's engine, or without a profile of a box; the last hour without `since` and `until`."""

    figure: str = Field(max_length=NAME, description="A name of /api/history/figures")
    profile: OfProfile = None
    node: str | None = Field(default=None, max_length=NAME, description="Another node than this one")
    since: Since = None
    until: Until = None
    points: int = Field(default=POINTS, ge=1, le=MOST_POINTS, description="At most so many buckets, about")


class RecentQuery(ApiRequest):
    """Figures over the last `seconds`, in buckets of `step_s` seconds; all figures without names."""

    figure: Names = Field(default=None, description="Only these figures; may be repeated")
    seconds: float = Field(default=600.0, ge=1, le=3600, description="Length of the period")
    step_s: float = Field(default=2.0, ge=1, le=60, description="Seconds of a bucket")


class UsageQuery(ApiRequest):
    """Group by which requests are added up; the last day without `since` and `until`."""

    by: UsageGroup = Field(default="profile", description="What the requests are added up by")
    since: Since = None
    until: Until = None
    profile: OfProfile = None
    client: OfClient = None
    offset_s: int = Field(default=0, ge=-86400, le=86400, description="Seconds east of UTC, for the days")


class PastRequestQuery(ApiRequest):
    """Filters, order and page of ended requests."""

    since: Since = None
    until: Until = None
    profile: OfProfile = None
    client: OfClient = None
    session: str | None = Field(default=None, description="Session, as the client's header names it")
    status: str | None = Field(default=None, pattern=STATUS, description="done, failed, gone or an HTTP status")
    min_ttft: float | None = Field(default=None, ge=0, description="Seconds to the first token, at least")
    sort: RequestOrder = Field(default="newest", description="Newest first, or the greatest of a figure")
    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="At most so many")
    after: str | None = Field(default=None, max_length=NAME, description="`next` of the answer before")


class MarkQuery(ApiRequest):
    """Period of the marks, the last day without `since` and `until`; profile whose marks are listed, or all."""

    since: Since = None
    until: Until = None
    profile: OfProfile = None
    limit: int = Field(default=MOST_ROWS, ge=1, le=MOST_ROWS, description="At most so many, the newest")


class LogQuery(ApiRequest):
    """Profile whose engine's log is read, how many of its last lines, and whether to go on while the engine lives."""

    name: str
    tail: int | None = Field(default=None, ge=0, le=COUNT, description="Only the last so many lines")
    follow: bool = Field(default=False, description="Go on while the engine lives")


class PullBody(ApiRequest):
    """Name or alias of the profile whose image is fetched."""

    profile: str


class UseBody(ApiRequest):
    """Name or alias of the profile to make resident, and on whose behalf."""

    profile: str
    cause: Cause = "user"


class LeaseBody(ApiRequest):
    """Take the gateway for oneself; with a token, renew the lease."""

    holder: str = Field(min_length=1, max_length=WORD, pattern=PRINTABLE)
    """Name that waiting clients are told."""
    token: str | None = None
    expected_s: float | None = Field(default=None, ge=0, le=COUNT, allow_inf_nan=False)
    measuring: Measuring | None = None
    """Progress for the screens; without it they keep what they show."""


class StopBody(ApiRequest):
    """Profile whose engine is stopped; null stops all engines."""

    profile: str | None = None
    wait: bool = True
    """Answer once the engine is gone; otherwise at once."""


class ReleaseBody(ApiRequest):
    """Parked profile that may be tried again; null releases all of them."""

    profile: str | None = None


class ExtendBody(ApiRequest):
    """Profile whose load stands still and may go on doing so for the whole limit, `no_progress_s`, from now on."""

    profile: str


class ToggleBody(ApiRequest):
    """New A and B profiles (a side that is left out stays as it is), and whether to switch to the other one."""

    a: str | None = None
    b: str | None = None
    flip: bool = False


class ReplayBody(ApiRequest):
    """Captured request to send again, to the profile `on` (name or alias). `begin: false` only plans it."""

    request: str = Field(min_length=1, max_length=WORD)
    on: str
    begin: bool = False


class SettingBody(ApiRequest):
    """New value of one setting. `key` is its path in config.toml: ["reserve_gib"] or ["policy", "NAME", "pinned"]."""

    key: list[str] = Field(min_length=1, max_length=3)
    value: str | None = Field(default=None, max_length=10_000)
    """TOML, or plain words for a text or a list of texts; null removes the key, so that the default holds."""


class StartRunBody(ApiRequest):
    """A/B run of marked profiles. `begin: false` only plans it."""

    profiles: list[str] = Field(min_length=1, max_length=26)
    suite: str = Field(default="smoke", pattern=SUITE_NAME)
    mode: BenchModeName = "standard"
    reps: int | None = Field(default=None, ge=1, le=1000)
    """Repetitions per cell and launch; null: those of suite and mode."""
    begin: bool = False


class ShutdownBody(ApiRequest):
    """Fate of the engines. The next daemon adopts those that are kept."""

    engines: Literal["keep", "stop"] = "keep"
