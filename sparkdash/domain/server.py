"""ServerSpec: what an owner says about a server that sparkdash starts and has no dialect for.

Owns: the keys of `server:` in a profile. Must not know any particular server.
Pure.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sparkdash.domain.base import Frozen
from sparkdash.domain.task import ServerRoute


class ServerKind(StrEnum):
    """Known server, whose description fills in what a profile leaves out."""

    ATLAS = "atlas"
    LUCEBOX = "lucebox"
    OLLAMA = "ollama"
    TABBYAPI = "tabbyapi"
    NIM = "nim"
    TEI = "tei"
    INFINITY = "infinity"
    SPEACHES = "speaches"
    PARAKEET = "parakeet"
    KOKORO = "kokoro"
    SD_CPP = "sd-cpp"
    SGLANG_DIFFUSION = "sglang-diffusion"


FIGURES = (
    "running", "waiting", "generated", "prompted", "prefilled", "prefix_hits", "prefix_queries", "kv_used",
    "kv_capacity", "decode_gauge", "drafts", "draft_tokens", "accepted", "preemptions", "moving", "ttft",
)  # fmt: skip
"""Figures that a profile may give the names of; fields of `MetricNames`."""


def _regular(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return pattern


UrlPath = Annotated[str, Field(pattern=r"^/[!-~]*$")]
Pattern = Annotated[str, Field(min_length=1), AfterValidator(_regular)]


class ServerMetrics(Frozen):
    """Figures that a server reports, by its own names."""

    path: UrlPath | None = "/metrics"
    """Path of the Prometheus text; null: the server reports nothing, and the gateway's own counts are all."""
    names: dict[str, str | tuple[str, ...]] = {}
    """Sample names by figure: running, waiting, generated, prompted, prefilled, prefix_hits, prefix_queries, kv_used,
    kv_capacity, decode_gauge, drafts, draft_tokens, accepted, preemptions, moving, ttft. Empty: found out by their
    prefixes.
    """
    is_live: bool = True
    """Whether the counters move while a request runs, and not only when it ends."""


class LogStage(Frozen):
    """Line of a server's log that reports a stage of its load."""

    stage: Literal["download", "weights", "compile", "kv", "graphs", "warmup", "http", "ready"]
    pattern: Pattern
    """Regular expression, searched anywhere in a line. It may name `pct`, or `done` and `total`."""
    fraction: float | None = Field(default=None, ge=0, le=1)
    """Share of the stage that such a line stands for, without `pct` and `done`."""


class LogFailure(Frozen):
    """Line of a server's log that tells why it does not come up."""

    pattern: Pattern
    """Regular expression, searched anywhere in a line, in any case."""
    message: str
    """Event as the beginning of a sentence."""
    hint: str = "The whole log is under `sparkdash logs {profile}`."
    """Remedy; {profile} stands for the profile's name."""
    code: Literal["engine_crash", "out_of_memory", "model_not_found", "token_refused", "no_gpu_device"] = "engine_crash"


class ServerSpec(Frozen):
    """Server behind `engine: generic`: how it is started, asked and ended."""

    kind: ServerKind | None = None
    """Known server, whose description fills in the keys that are left out here."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port that the server listens on in its container, where it cannot be told another with {port}. The container
    gets a network of its own, and sparkdash publishes the port on 127.0.0.1.
    """
    keep_entrypoint: bool = False
    """Whether `command` holds only arguments for the image's own entrypoint."""
    routes: tuple[ServerRoute, ...] = (ServerRoute.CHAT,)
    """Routes that the server serves; requests for others are refused."""
    paths: dict[ServerRoute, UrlPath] = {}
    """Paths of routes at the server, where they differ from OpenAI's."""
    health: UrlPath = "/health"
    """Path that answers 200 once the server is up."""
    health_has: dict[str, str | bool | int | float] = {}
    """Keys and values that the health path's JSON must have, such as {status: ready}."""
    models: UrlPath | None = "/v1/models"
    """Path of the model list; null: the server has none."""
    version: UrlPath | None = None
    """Path of a JSON object with `version`."""
    ready_by: ServerRoute | Literal["health"] | None = None
    """Route whose answer proves that the model works, before the first client. Default: the first of `routes`.
    `health`: the health path alone decides.
    """
    ready_with: dict[str, Any] = {}
    """Keys that the request of that proof has besides, such as {voice: af_bella}."""
    metrics: ServerMetrics | None = None
    """Figures that the server reports. Default: found out by looking at the usual paths."""
    usage_in_stream: bool = False
    """Whether the server counts a stream's tokens when `stream_options.include_usage` asks it to."""
    log: tuple[LogStage, ...] = ()
    """Log lines that report the stages of a load."""
    failures: tuple[LogFailure, ...] = ()
    """Log lines that tell why a start failed."""
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGQUIT"] = "SIGTERM"
    """Signal that asks the server to end."""
    stop_s: float | None = Field(default=None, gt=0, le=3600, allow_inf_nan=False)
    """Seconds from the signal to SIGKILL. Default: `stop_grace_s` of the settings."""

    @property
    def launch(self) -> dict[str, object]:
        """Keys that change the running engine, for the fingerprint."""
        return self.model_dump(mode="json", include={"kind", "port", "keep_entrypoint", "stop_signal"})
