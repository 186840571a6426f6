"""Admission of a request whose body is understood: its model, its key's models, its urgency."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import urlsplit

from sparkdash.catalog.catalog import Catalog, replica_names
from sparkdash.domain.base import per_request
from sparkdash.domain.engine import EngineState
from sparkdash.domain.profile import AUTO, EngineKind, Profile, base_name
from sparkdash.domain.request import ROUTE_PATHS, ServerRoute
from sparkdash.domain.state import Snapshot
from sparkdash.engines.generic.known_servers import described_server
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.gateway.admission.access import may_see, permitted_name, visible_snapshot
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.capture import Capture
from sparkdash.gateway.http.exchange import BodyShare, Exchange
from sparkdash.gateway.http.headers import HeaderPairs
from sparkdash.gateway.protocol.answer_text import KeptAnswer
from sparkdash.gateway.protocol.peek import PeekedBody, fills_in, is_for_responses, is_form, peek_body, priority_word
from sparkdash.gateway.protocol.problems import REMOTE_REFUSED
from sparkdash.gateway.protocol.replicas import conversation_in
from sparkdash.gateway.protocol.route import Dialect, Route
from sparkdash.limits import shown
from sparkdash.upstream import engine_error_text

AGAIN_MOST_S = 86400.0
"""Upper limit of a remote Retry-After; a longer one is a mistake, or no number."""
_LEAVES = frozenset({b"content-type", b"accept"})
"""Headers of a client that leave this box. The others tell who it is and what it runs on."""
_KEY = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_PASSES = frozenset(
    {HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Statuses, besides 5xx, after which another profile may do better. A 400 is the request's own fault."""


def engine_url(profile: Profile, url: str, path: str) -> str:
    """Build the URL of a path; a remote base URL already ends with the counterpart of /v1."""
    base = url.rstrip("/")
    return base + (path.removeprefix("/v1") if profile.engine.is_remote else path)


def headers_for_remote(given: HeaderPairs, own: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Choose the client's headers for a remote service, and add our `own`."""
    ours = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items())
    return (*(pair for pair in given if pair[0].lower() in _LEAVES), *ours)


def is_reworded(status: int, *, others: bool) -> bool:
    """Whether the answer is reworded rather than passed on. `others`: there are fallbacks."""
    return status in _KEY or (others and (status in _PASSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR))


def remote_refusal(
    profile: Profile, status: int, body: bytes, own: Mapping[str, str], retry_after: str | None
) -> HostError:
    """Reword a remote service's refusal, without our key should the service have repeated it."""
    for secret in own.values():
        body = body.replace(secret.removeprefix("Bearer ").encode("latin-1"), b"***")
    words = engine_error_text(body)
    where = urlsplit(profile.url or "").netloc
    if status in _KEY:
        key = f"the key in {profile.key_env}" if profile.key_env else "a request without a key"
        name = profile.key_env or "`key_env` in the profile"
        hint = f"Set {name} right where the daemon is started, and start it again."
        return HostError(
            f"{profile.name}: {where} refused {key} ({status}: {words}).",
            code="remote_refused_key",
            status=HTTPStatus.BAD_GATEWAY,
            hint=hint,
        )
    again = min(float(retry_after), AGAIN_MOST_S) if retry_after and retry_after.isdecimal() else None
    text = f"{profile.name}: {where} answered {status}: {words}"
    return HostError(text, code=REMOTE_REFUSED, status=status, retry_after=again)


Choices = Mapping[str, Sequence[str]]
"""Profiles by the name that means one of them."""
NO_CHOICES: Choices = MappingProxyType({})
_RUNS = frozenset({EngineState.READY})
_COMES = frozenset({EngineState.CREATING, EngineState.LOADING, EngineState.WARMING})
COUNT_TOKENS = "/v1/messages/count_tokens"
"""Path of a call that is never worth a swap: agents count in the background, 25 at once."""


def resolve_model(
    name: str,
    catalog: Catalog,
    stand_ins: Mapping[str, str],
    choices: Choices = NO_CHOICES,
    state: Callable[[], Snapshot] | None = None,
    may_use: Callable[[Profile], bool] = lambda _: True,
) -> tuple[str, Profile | None]:
    """Resolve a client's word: return the name for the supervisor, and its profile.

    A profile's own name wins over a name for several, and that one over a stand-in pattern of the settings. `choices`:
    names that mean one of several profiles, of which only those that `may_use` count. `state` is read for such a name
    alone: each reading adds up what was published since the last one.
    """
    profile = find_profile(name, catalog)
    if profile is not None or name == AUTO:
        return name, profile
    other = name
    if name not in choices:
        other = next((other for pattern, other in stand_ins.items() if fnmatchcase(name, pattern)), name)
    if other in choices and state is not None and catalog.exactly(other) is None:
        other = _chosen(choices[other], catalog, state(), may_use)
    return other, find_profile(other, catalog)


def _chosen(words: Sequence[str], catalog: Catalog, snapshot: Snapshot, may_use: Callable[[Profile], bool]) -> str:
    """Return the name of the profile that a name for several means now; the first one where none can run."""
    found = [each for word in words if (each := find_profile(word, catalog)) and may_use(each)]
    return chosen_name([each.name for each in found if not each.cannot_run], snapshot) or words[0]


def meant_profile(name: str, catalog: Catalog, choices: Choices, state: Callable[[], Snapshot]) -> str:
    """Return the profile that an owner means: of a name for several the one that runs, else the first that can."""
    return resolve_model(name, catalog, {}, choices, state)[0]


def chosen_name(names: Sequence[str], snapshot: Snapshot) -> str | None:
    """Choose of several profiles: the first that runs, else the first that comes, else the first; None of none."""
    return next(iter(_nearest_to_run(names, snapshot) or names), None)


def _nearest_to_run(names: Sequence[str], snapshot: Snapshot) -> list[str]:
    """Return those that run, else those that come."""
    states = [engine.state if (engine := snapshot.engines.get(name)) else None for name in names]
    for wanted in (_RUNS, _COMES):
        if found := [name for name, state in zip(names, states, strict=True) if state in wanted]:
            return found
    return []


def find_profile(name: str, catalog: Catalog) -> Profile | None:
    """Find the profile of that name; None for `auto` and for an unknown name."""
    if name == AUTO:
        return None
    try:
        return catalog.find(name)
    except SparkdashError:
        return None


def refuse_count(name: str, catalog: Catalog, snapshot: Snapshot) -> None:
    """Refuse to count tokens where that would load an engine; a remote service needs none. Raises as `find` does.

    Claude Code makes an estimate of its own after a 404. The state may be old by the time of the lease; then one more
    swap is made, and nothing is wrong.
    """
    if name == AUTO or (profile := catalog.find(name)).engine.is_remote:
        return
    engine = snapshot.engines.get(profile.name)
    if engine is None or engine.state is not EngineState.READY:
        raise AdmissionError(
            f"{profile.name} is not loaded, and only its engine can count its tokens.",
            code="not_loaded",
            status=HTTPStatus.NOT_FOUND,
            hint="Send it a message, or start it with `sparkdash use`; counting alone loads nothing.",
        )


_ROUTES: Mapping[str, ServerRoute] = MappingProxyType(
    {
        **{path: route for route, path in ROUTE_PATHS.items()},
        "/rerank": ServerRoute.RERANK,
        "/v2/rerank": ServerRoute.RERANK,
        "/score": ServerRoute.SCORE,
    }
)
_TRANSLATED = frozenset({ServerRoute.RESPONSES, ServerRoute.MESSAGES})
"""Routes that a chat can answer."""


def refuse_unserved(profile: Profile | None, route: Route, others: Callable[[], str] = str) -> None:
    """Raise AdmissionError for a known path that the server does not serve. `others`: see `served_elsewhere`."""
    server = described_server(profile) if profile is not None and route.profile is None else None
    if profile is None or server is None:
        return
    wanted = _ROUTES.get(route.path)
    if wanted is None:
        return
    served = server.routes
    if wanted in served or (wanted in _TRANSLATED and ServerRoute.CHAT in served):
        return
    raise AdmissionError(
        f"{profile.name} does not serve {route.path}. It serves {', '.join(ROUTE_PATHS[each] for each in served)}.",
        code="route_not_served",
        hint=f"{others()}If the server has the route, add it to `server.routes` of its profile.",
        status=404,
    )


def unserved_error(context: "RequestContext", profile: Profile, words: bytes) -> AdmissionError:
    """Make the error for a route that an engine turned out not to have; `words` are its own."""
    others = served_elsewhere(context.deps, context.exchange, context.route)
    return AdmissionError(
        f"{profile.name} does not serve {context.route.path}: its engine says {engine_error_text(words)!r}.",
        code="route_not_served",
        hint=others.strip() or "No profile here is known to serve it.",
        status=404,
    )


def served_elsewhere(deps: Deps, exchange: Exchange, route: Route) -> str:
    """Name profiles that the caller may use and that do the route's work, the running ones first; a sentence."""
    snapshot, catalog = visible_snapshot(exchange.key, deps.bus.snapshot), deps.catalog()

    def does(name: str) -> bool:
        profile = find_profile(name, catalog)
        tasks = None if profile is None else adapter_of(profile).tasks(profile, deps.supervisor.target(profile))
        return tasks is not None and route.task in tasks

    names = [one.name for one in snapshot.profiles if one.cannot_run is None and does(one.name)]
    running = {name for name, engine in snapshot.engines.items() if engine.state in _RUNS}
    names.sort(key=lambda one: one not in running)
    named = [f"{name} (runs)" if name in running else name for name in names]
    return f"Use {' or '.join(named[:OTHERS])}. " if named else ""


OTHERS = 3
"""Most profiles that such an error names."""


def server_path(profile: Profile, path: str) -> str:
    if profile.server is None or (server := described_server(profile)) is None:
        return path
    route = _ROUTES.get(path)
    return path if route is None else server.paths.get(route, path)


@per_request
class RequestContext:
    """Request, understood and admitted."""

    deps: Deps
    exchange: Exchange
    route: Route
    body_share: BodyShare
    """Holds the body until an engine's answer begins."""
    peeked: PeekedBody
    name: str
    profile: Profile | None
    """Profile of `name`, if it was read; None for `auto` and for an unknown name."""
    batch: bool
    """Whether other requests may go first."""
    autocomplete: bool = False
    """Whether it is answered at once or not at all, and stops no engine."""
    conversation: str | None = None
    """Name of the conversation, which stays on one replica; None where the profile has no replicas."""


_GENERIC = EngineKind.GENERIC
_CHAT = Dialect.CHAT
"""Looked up here: in the enum that takes as long as three calls, for each request."""
_MAY_FILL_IN = frozenset({Dialect.COMPLETIONS, Dialect.OTHER})
AGENT_KEPT = 200
"""Characters of a User-Agent that identify a client."""


def admit_request(
    deps: Deps, exchange: Exchange, route: Route, body_share: BodyShare, peeked: PeekedBody
) -> RequestContext:
    """Find what the request's model means, and whether it may have it.

    Raises:
        AdmissionError: `model_missing`, `wrong_protocol`, `invalid_priority`, `route_not_served`, `held`, or what a key
            may not use.
    """
    head, key = exchange.head, exchange.key
    word = None if head.priority is None else priority_word(head.priority)
    batch = word == "batch" or (word is None and (peeked.service_tier == "flex" or (key is not None and key.batch)))
    autocomplete = word == "autocomplete" or (
        word is None
        and (
            (key is not None and key.autocomplete)
            or (route.dialect in _MAY_FILL_IN and fills_in(route.path, peeked, body_share.body))
        )
    )
    if peeked.model is None and route.needs_model:
        raise _no_model(route)
    body = body_share.body
    if route.dialect is _CHAT and body.find(b'"messages"') < 0 and peeked.model and is_for_responses(body):
        raise _wrong_protocol(route)
    catalog = deps.catalog()
    asked = route.profile or peeked.model or AUTO
    name, profile = asked, catalog.exactly(asked)
    if profile is None:
        name, profile = resolve_model(
            asked,
            catalog,
            deps.settings.model_names,
            deps.choices(),
            lambda: deps.bus.snapshot,
            lambda one: may_see(key, one),
        )
    if key is not None and key.models:
        name = permitted_name(key, name, catalog, lambda: deps.bus.snapshot, route.task)
        profile = find_profile(name, catalog)
    if profile is not None and profile.engine is _GENERIC:
        refuse_unserved(profile, route, lambda: served_elsewhere(deps, exchange, route))
    if deps.exclusive.taken is not None:
        deps.exclusive.admit(head.token)
    return RequestContext(deps, exchange, route, body_share, peeked, name, profile, batch, autocomplete)


def _no_model(route: Route) -> AdmissionError:
    return AdmissionError(
        f"The request to {route.path} names no model.",
        code="model_missing",
        hint='Add "model": the name of a profile (GET /v1/models lists them), or "auto" for whatever runs now.',
    )


def _wrong_protocol(route: Route) -> AdmissionError:
    return AdmissionError(
        f"The request to {route.path} has `input` and no `messages`: it is one for /v1/responses.",
        code="wrong_protocol",
        hint="Post it there, or have the client use the chat completions protocol.",
    )


async def on_replica(context: RequestContext, profile: Profile) -> RequestContext:
    """Choose the replica of a request for a profile that has some."""
    deps = context.deps
    await deps.supervisor.adopted()  # until then the conversation's own may seem not to run
    words = context.exchange.head.session or conversation_in(context.body_share.body) or deps.new_id()
    context = replace(context, conversation=f"{profile.name} {words}")
    name = next_replica(context, ()) or profile.name
    return replace(context, name=name, profile=deps.catalog().find(name))


def next_replica(context: RequestContext, tried: Sequence[str]) -> str | None:
    """Choose among the replicas that run, else that come, else the first; None: all were tried, or there are none."""
    deps = context.deps
    if context.conversation is None:
        return None
    names = [each for each in replica_names(deps.catalog().profiles, base_name(context.name)) if each not in tried]
    snapshot = deps.bus.snapshot
    well = [each for each in names if (engine := snapshot.engines.get(each)) is None or not engine.is_stuck]
    found = _nearest_to_run(well or names, snapshot) or names[:1]
    return deps.replicas.choose(context.conversation, found) if found else None


START_S = 10.0
"""Pause before absent replicas are asked to come once more."""


async def start_replicas(context: RequestContext) -> None:
    """Have the absent replicas come where nobody must leave, once a request shares the engine that it was given."""
    deps, now = context.deps, context.deps.monotonic()
    replicas, base = deps.replicas, base_name(context.name)
    if context.conversation is None or not replicas.running[context.name] or now < replicas.start_at.get(base, now):
        return
    replicas.start_at[base] = now + START_S
    engines = deps.bus.snapshot.engines
    for name in replica_names(deps.catalog().profiles, base):
        if name not in engines or engines[name].state is EngineState.FAILED:
            with suppress(SparkdashError):  # such a request evicts nobody and never waits, and its engine comes later
                async with deps.supervisor.lease(
                    name, request_id=deps.new_id(), on_wait=lambda _: None, autocomplete=True
                ):
                    pass


def client_identity(exchange: Exchange) -> str | None:
    """Identify the client by its key and its User-Agent."""
    agent, key = exchange.head.agent[:AGENT_KEPT], exchange.key
    return f"{key.name} {agent}" if key is not None else agent or None


def row_profile(context: RequestContext) -> str:
    """Name the profile in the row until a lease tells it: the profile of the client's word, or the word itself."""
    if context.profile is not None:
        return context.profile.name
    runs = context.deps.bus.snapshot.auto(context.route.task) if context.name == AUTO else None
    return runs or shown(context.name)


async def read_body(deps: Deps, exchange: Exchange, route: Route, share: BodyShare) -> PeekedBody:
    """Read the body into `share`; return what it says. Raises as `Exchange.body` and `peek_body` do."""
    settings, content_type = deps.settings, exchange.head.content_type
    if route.generates or not is_form(content_type):
        share.body = await exchange.body(settings.body_limit_mib, share, settings.body_s)
    else:
        share.body = await exchange.body(settings.upload_limit_mib, share, settings.body_s, "upload_limit_mib")
    if deps.capture is not None:
        await _capture(deps, deps.capture, exchange, share.body)
    return peek_body(share.body, content_type) if route.profile is None else PeekedBody()


async def _capture(deps: Deps, capture: Capture, exchange: Exchange, body: bytes) -> None:
    """Have the capture keep the request, broken ones too."""
    if body:
        kept = exchange.kept = exchange.kept or KeptAnswer(deps.new_id())
        await asyncio.to_thread(capture.keep, exchange, body, deps.clock(), kept.request_id)
