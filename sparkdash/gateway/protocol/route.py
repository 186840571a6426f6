"""Route: what a path of the engine API means.

Rule: an unknown path has no route, and the client gets a 404: probing clients take a 200 for a yes. Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from urllib.parse import unquote

from sparkdash.domain.request import Task
from sparkdash.limits import NAME


class Dialect(StrEnum):
    """Protocol of a path: how its stream is framed, and how waiting and failure are told in it."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    OTHER = "other"
    """Every other path: embeddings, audio, rerank, an engine's own."""


@dataclass(frozen=True, slots=True)
class Route:
    """Meaning of a request's path. `path` is what the engine gets, still percent-encoded."""

    path: str
    dialect: Dialect = Dialect.OTHER
    needs_model: bool = False
    """Whether the body must name a model; otherwise a missing one means `auto`."""
    methods: frozenset[str] | None = None
    """Allowed methods; None: the engine decides."""
    generates: bool = False
    """Whether the profile's request defaults apply."""
    task: Task | None = None
    """Task that the route asks of a model; None: any engine can do it."""
    upgrades: bool = False
    """Whether the path is served by WebSocket."""
    profile: str | None = None
    """Profile in the path itself: its engine gets the request unchanged, whatever the body says."""


_POST = frozenset({"POST"})
_READ = frozenset({"GET", "HEAD"})
_RAW = _POST | _READ | {"DELETE"}
_GENERATE = {
    "/v1/chat/completions": Dialect.CHAT,
    "/v1/completions": Dialect.COMPLETIONS,
    "/v1/responses": Dialect.RESPONSES,
    "/v1/messages": Dialect.MESSAGES,
}
_MODEL = dict.fromkeys(
    (
        "/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/audio/transcriptions", "/v1/audio/translations",
        "/v1/audio/speech", "/v1/images/generations", "/v1/images/edits", "/v1/images/variations",
    ),
    Dialect.OTHER,
) | {"/v1/messages/count_tokens": Dialect.MESSAGES}  # fmt: skip
_MODEL_OPTIONAL = frozenset({"/v1/images/generations", "/v1/images/edits", "/v1/images/variations"})
"""Paths whose requests name no model to servers that have but one."""
METRICS = "/metrics"
REALTIME = "/v1/realtime"
"""Path of speech and text over a WebSocket; the model is in the query."""
_OF_SERVER = frozenset({"/tokenize", "/detokenize", "/apply-template", "/messages/count_tokens"})
"""Paths, without /v1, that an engine's HTTP server answers without its model."""
_AT_ROOT = {
    "/tokenize": _POST,
    "/detokenize": _POST,
    "/rerank": _POST,
    "/v2/rerank": _POST,
    "/score": _POST,
    "/infill": _POST,
    "/completion": _POST,
    "/apply-template": _POST,
    "/props": _READ,
    "/slots": _READ,
}
"""Paths that engines serve without /v1."""
_OWNERS = (
    "abort_request", "admin", "clear_", "collective_rpc", "configure_", "continue_generation", "destroy_", "dump",
    "flush_cache", "freeze_gc", "hicache", "init_", "is_paused", "is_scaling", "is_sleeping", "lora",
    "load_lora", "models/load", "models/unload", "pause", "release_memory", "reset_", "resume", "scale_",
    "send_weights", "server_info", "get_server_info", "get_weights", "set_", "shutdown", "sleep", "slots/",
    "slow_down", "start_", "stop_", "unload_lora", "update_", "v1/load_lora", "v1/unload_lora", "wake_up",
)  # fmt: skip
"""Prefixes of the paths with which owners put engines to sleep, empty, reload or end them, some of them with a GET.
Some print the command line, keys included. None is for clients. Source: vLLM 0.33, SGLang 0.5.23, llama.cpp."""
_TASKS = {
    "/v1/embeddings": Task.EMBED,
    "/v1/rerank": Task.RERANK, "/v2/rerank": Task.RERANK, "/rerank": Task.RERANK,
    "/v1/score": Task.RERANK, "/score": Task.RERANK,
    "/v1/audio/transcriptions": Task.TRANSCRIBE, "/v1/audio/translations": Task.TRANSCRIBE,
    "/v1/audio/speech": Task.SPEAK,
    "/v1/images/generations": Task.DRAW, "/v1/images/edits": Task.DRAW, "/v1/images/variations": Task.DRAW,
    "/v1/messages/count_tokens": Task.GENERATE, "/infill": Task.GENERATE, "/completion": Task.GENERATE,
    "/apply-template": Task.GENERATE,
}  # fmt: skip
_PLAIN = {
    **{
        path: Route(path, dialect, needs_model=True, methods=_POST, generates=True, task=Task.GENERATE)
        for path, dialect in _GENERATE.items()
    },
    **{
        path: Route(path, dialect, needs_model=path not in _MODEL_OPTIONAL, methods=_POST, task=_TASKS.get(path))
        for path, dialect in _MODEL.items()
    },
}
_SOCKETS = {REALTIME: Route(REALTIME, methods=_READ, upgrades=True)}
_REPEATED = re.compile("^(?:/v1)+/v1/")
"""Repeated prefix of a path, from a base URL that ends with the beginning of the path."""
_UPSTREAM = "/upstream/"
_LONGEST_NAME = 3 * NAME
"""Most characters of a name in a path, if all of them are percent-encoded."""
_OLLAMA = "version tags ps show chat generate embed embeddings pull push create copy delete"
OLLAMA = frozenset(f"/api/{word}" for word in _OLLAMA.split())
"""Ollama's paths, for clients that only speak it. The other paths under /api are our own control API."""
_FORGIVEN = frozenset(path.removeprefix("/v1") for path in (*_GENERATE, *_MODEL, REALTIME)) - _AT_ROOT.keys()
"""Paths without /v1, of clients whose base URL lacks it."""


def find_route(raw_path: str) -> Route | None:
    if route := _PLAIN.get(raw_path):
        return route
    path = unquote(raw_path)
    if _escapes(path):
        return None
    raw_path = _REPEATED.sub("/v1/", raw_path.rstrip("/"))
    if raw_path in _FORGIVEN:
        raw_path = "/v1" + raw_path
    if route := _PLAIN.get(raw_path) or _SOCKETS.get(raw_path):
        return route
    if methods := _AT_ROOT.get(raw_path):
        return Route(raw_path, methods=methods, task=_TASKS.get(raw_path))
    return Route(raw_path) if raw_path.startswith("/v1/") and not is_for_owners(path) else None


def shows_work(route: Route, method: str) -> bool:
    """Whether an answer shows that the engine works; a stuck one still counts tokens and tells of itself."""
    return method not in _READ and route.path.removeprefix("/v1") not in _OF_SERVER


def is_plain(raw_path: str) -> bool:
    """Whether the path is a known engine path in its canonical spelling that no other handler answers."""
    return raw_path in _PLAIN


def raw_route(raw_path: str, is_profile: Callable[[str], bool]) -> Route | None:
    """Find the route of `/upstream/PROFILE/PATH`, where the profile's name may contain a slash; None without one.

    Only the dialect is looked up, so that tokens are counted. With an owner's path there is no route.
    """
    if not raw_path.startswith(_UPSTREAM) or _escapes(unquote(raw_path)):
        return None
    rest = raw_path.removeprefix(_UPSTREAM)
    end = rest.rfind("/", 0, _LONGEST_NAME + 1)
    while end > 0:
        name = unquote(rest[:end])
        if is_profile(name):
            return _of_engine(name, rest[end:])
        end = rest.rfind("/", 0, end)
    return None


def _of_engine(profile: str, path: str) -> Route | None:
    if is_for_owners(unquote(path)):
        return None
    known = find_route(path)
    dialect = known.dialect if known else Dialect.OTHER
    return Route(path, dialect, methods=known.methods if known and known.methods else _RAW, profile=profile)


def is_for_owners(path: str) -> bool:
    """Whether the path manages an engine rather than uses it."""
    return path.lstrip("/").lower().startswith(_OWNERS)


@lru_cache(maxsize=256)
def is_control(path: str) -> bool:
    """Whether a (decoded) path belongs to the box's managers, rather than to users of a model."""
    tidy = path.rstrip("/")
    return tidy == METRICS or (path.startswith("/api/") and tidy not in OLLAMA) or is_llama_swap_command(path)


def is_llama_swap_command(path: str) -> bool:
    """Whether a GET changes what runs, as llama-swap's: /unload, /unload/MODEL, /upstream/MODEL."""
    return _LLAMA_SWAP.fullmatch(path) is not None


_LLAMA_SWAP = re.compile(r"/unload(?:/.*)?|/upstream/[^/]+")


def _escapes(path: str) -> bool:
    """Whether an engine may resolve the path to another one than we do."""
    return any(part in (".", "..") for part in path.split("/")) or "\\" in path
