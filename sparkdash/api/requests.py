"""Request models of the control API: what each call takes in its path, its query or its body. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sparkdash.domain.event import Measuring
from sparkdash.domain.history import MOST_POINTS, MOST_ROWS, RequestOrder, UsageGroup
from sparkdash.limits import COUNT, PRINTABLE, WORD

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


class FeedPosition(ApiRequest):
    """Number of the last event that the listener has; without it the feed begins with a snapshot."""

    since: int | None = None


class IncidentQuery(ApiRequest):
    """Profile whose incidents are listed (without it: all profiles), and the most that are listed."""

    profile: str | None = None
    limit: int = 100


class DoctorQuery(ApiRequest):
    """Names of the checks to run; without names all of them run."""

    check: list[str] | None = None


class SeriesQuery(ApiRequest):
    """Figure of a profile's engine, or without a profile of a box; the last hour without `since` and `until`."""

    figure: str
    profile: str | None = None
    node: str | None = None
    since: float | None = None
    until: float | None = None
    points: int = Field(default=POINTS, ge=1, le=MOST_POINTS)


class RecentQuery(ApiRequest):
    """Figures over the last `seconds`, in buckets of `step_s` seconds; all figures without names."""

    figure: list[str] | None = None
    seconds: float = Field(default=600.0, ge=1, le=3600)
    step_s: float = Field(default=2.0, ge=1, le=60)


class UsageQuery(ApiRequest):
    """Group by which requests are added up; the last day without `since` and `until`."""

    by: UsageGroup = "profile"
    since: float | None = None
    until: float | None = None
    profile: str | None = None
    client: str | None = None
    offset_s: int = Field(default=0, ge=-86400, le=86400)
    """Seconds east of UTC, for the beginning of days."""


class PastRequestQuery(ApiRequest):
    """Filters, order and page of ended requests."""

    since: float | None = None
    until: float | None = None
    profile: str | None = None
    client: str | None = None
    session: str | None = None
    status: str | None = Field(default=None, pattern=STATUS)
    min_ttft: float | None = None
    sort: RequestOrder = "newest"
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)
    after: str | None = None


class MarkQuery(ApiRequest):
    """Period of the marks, the last day without `since` and `until`; profile whose marks are listed, or all."""

    since: float | None = None
    until: float | None = None
    profile: str | None = None
    limit: int = Field(default=MOST_ROWS, ge=1, le=MOST_ROWS)


class LogQuery(ApiRequest):
    """Profile whose engine's log is read, how many of its last lines, and whether to go on while the engine lives."""

    name: str
    tail: int | None = None
    follow: bool = False


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
    shares: bool = False
    """Let others in: only another holder is refused."""
    pid: int | None = Field(default=None, gt=0, lt=2**31)
    """The holder's process: the lease ends with it. Heeded over the unix socket only; over TCP the process may be on
    another box.
    """


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


class UseSetBody(ApiRequest):
    """Name of a set of config.toml; `begin: false` only plans it."""

    name: str
    begin: bool = True


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


class TrafficBody(ApiRequest):
    """Whether the demo's traffic runs."""

    on: bool


class ShutdownBody(ApiRequest):
    """Fate of the engines. The next daemon adopts those that are kept."""

    engines: Literal["keep", "stop"] = "keep"
