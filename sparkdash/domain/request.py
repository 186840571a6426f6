"""Requests as people see them, their tasks and routes, and the engine that `auto` means for each. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import ConfigDict

from sparkdash.domain.base import STRICT, of_many_fields

LEASE_HEADER = "x-sparkdash-lease"
"""Request header with the token of an exclusive lease of the gateway; never forwarded to an engine."""

ASIDES = frozenset({
    "/tokenize", "/detokenize", "/apply-template", "/props", "/slots", "/v1/messages/count_tokens",
    "/v1/responses/input_tokens",
})  # fmt: skip
"""Routes that ask an engine something beside its work; some clients call them before each request."""


class RequestState(StrEnum):
    """Progress of a request."""

    WAITING = "waiting"
    PREFILL = "prefill"
    """Sent to the engine, no answer byte yet."""
    STREAMING = "streaming"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"


@of_many_fields
class Request:
    """A request as the gateway saw it. Times are Unix seconds, durations seconds, rates tokens per second."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    _: KW_ONLY

    id: str
    client: str
    """Short name made from the User-Agent, never an address or a key."""
    key: str | None = None
    """Name of the access key; None where none is required."""
    profile: str
    route: str
    state: RequestState
    started_at: float
    stream: bool = False
    node: str | None = None
    """Node whose engine serves the request, the head's of several; None while it waits, and for a server not ours."""
    position: int | None = None
    """Position in the queue, 1 is next; None when the request does not wait."""
    held_by: str | None = None
    """Profiles whose engines are in use and would leave for the request; None when it waits for nobody's use."""
    held_until: float | None = None
    """Time until which they are kept at the latest; None without a limit."""
    granted_at: float | None = None
    finished_at: float | None = None
    status: int | None = None
    ttft_s: float | None = None
    """Time from sending to the engine until the first event with text, reasoning or a tool call; without waiting."""
    prompt_estimate: int | None = None
    """Prompt tokens guessed from the body's size ("~"), until the usage is known; None with pictures or sound."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    completion_estimate: int | None = None
    """Output tokens of a stream that ended uncounted, estimated from its events and shown as "~"."""
    reasoning_tokens: int | None = None
    """Reasoning tokens within the completion, where the engine counts them."""
    decode_tok_s: float | None = None
    """Decode rate: (completion tokens - 1) / (last - first text-bearing event), by the engine's own usage."""
    finish_reason: str | None = None
    error: str | None = None
    """Code of the error, never the prompt."""
    energy_wh: float | None = None
    """The box's power over the request's time, shared by tokens among those that ran; None: no sensor, or too short."""
    internal: bool = False
    """Whether sparkdash itself made the request: the demo's traffic."""
    session: str | None = None
    """Session of the client, as a header of the request names it."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Self:
        """Make a request of a dictionary with all of its fields, which belongs to it from now on."""
        made = cls.__new__(cls)
        made.__dict__ = facts
        return made


class Task(StrEnum):
    """Kind of work that a request asks a model for."""

    GENERATE = "generate"
    EMBED = "embed"
    RERANK = "rerank"
    TRANSCRIBE = "transcribe"
    SPEAK = "speak"
    DRAW = "draw"


class Candidate(NamedTuple):
    """A running engine as a candidate for `auto`. All times are of the same clock."""

    profile: str
    tasks: frozenset[Task] | None
    used_at: Mapping[Task, float]
    ready_at: float

    def suits(self, task: Task | None) -> bool:
        """Whether the candidate is not known to lack the task. No task, as for token counts, suits any engine."""
        return task is None or self.tasks is None or task in self.tasks


def meant_by_auto(task: Task | None, there: Iterable[Candidate], own: str | None = None) -> str | None:
    """Choose the profile that `auto` means: `own`, this client's last; the task's last; the last that became ready.

    None when no running engine can do the task.
    """

    def rank(each: Candidate) -> tuple[bool, float, bool, bool, float]:
        times = each.used_at.values() if task is None else [at for used, at in each.used_at.items() if used is task]
        known = each.tasks is not None
        return (each.profile == own, max(times, default=float("-inf")), known, not each.used_at, each.ready_at)

    best = max((each for each in there if each.suits(task)), key=rank, default=None)
    return best.profile if best else None


class ServerRoute(StrEnum):
    """Work that a server may be asked for; each has a path of its own."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"
    TRANSCRIPTIONS = "transcriptions"
    TRANSLATIONS = "translations"
    SPEECH = "speech"
    IMAGES = "images"
    IMAGE_EDITS = "image_edits"
    REALTIME = "realtime"


ROUTE_PATHS: Mapping[ServerRoute, str] = MappingProxyType(
    {
        ServerRoute.CHAT: "/v1/chat/completions",
        ServerRoute.COMPLETIONS: "/v1/completions",
        ServerRoute.RESPONSES: "/v1/responses",
        ServerRoute.MESSAGES: "/v1/messages",
        ServerRoute.EMBEDDINGS: "/v1/embeddings",
        ServerRoute.RERANK: "/v1/rerank",
        ServerRoute.SCORE: "/v1/score",
        ServerRoute.TRANSCRIPTIONS: "/v1/audio/transcriptions",
        ServerRoute.TRANSLATIONS: "/v1/audio/translations",
        ServerRoute.SPEECH: "/v1/audio/speech",
        ServerRoute.IMAGES: "/v1/images/generations",
        ServerRoute.IMAGE_EDITS: "/v1/images/edits",
        ServerRoute.REALTIME: "/v1/realtime",
    }
)
"""Path of each route at the gateway, and at the server unless its profile says otherwise."""

ROUTE_TASKS: Mapping[ServerRoute, Task] = MappingProxyType(
    {
        ServerRoute.CHAT: Task.GENERATE,
        ServerRoute.COMPLETIONS: Task.GENERATE,
        ServerRoute.RESPONSES: Task.GENERATE,
        ServerRoute.MESSAGES: Task.GENERATE,
        ServerRoute.EMBEDDINGS: Task.EMBED,
        ServerRoute.RERANK: Task.RERANK,
        ServerRoute.SCORE: Task.RERANK,
        ServerRoute.TRANSCRIPTIONS: Task.TRANSCRIBE,
        ServerRoute.TRANSLATIONS: Task.TRANSCRIBE,
        ServerRoute.SPEECH: Task.SPEAK,
        ServerRoute.IMAGES: Task.DRAW,
        ServerRoute.IMAGE_EDITS: Task.DRAW,
    }
)
"""Task of each route, by which `auto` chooses; realtime has none."""
