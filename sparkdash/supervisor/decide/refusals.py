"""Refusals: the errors that tell a request why it is not served. Pure."""

from collections.abc import Mapping, Sequence

from sparkdash.domain.cluster import ASSUMED, Cables, Topology, groups
from sparkdash.domain.memory import Holding, Need
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import Task
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, DaemonError, EngineError, SparkdashError, UpstreamError
from sparkdash.supervisor.decide.fit import BoxMemory, Choice
from sparkdash.supervisor.decide.moves import ProfileFacts
from sparkdash.units import counted, gib, one_line

CUT = "cut"
"""Code of a request that was ended on purpose: for a swap after the drain, or by a person's stop."""
NAMED = 2
RETRY_S = 10.0
"""Seconds that a full queue asks clients to wait. Clients keep Retry-After to the second, and none waits minutes."""


def unstartable(name: str, known: ProfileFacts | None) -> SparkdashError | None:
    if known is None:
        return AdmissionError(f"No profile is called {name!r}.", code="model_not_found", status=404)
    if known.cannot_run:
        hint = f"Use {known.nearest} instead." if known.nearest else None
        return AdmissionError(f"{name} cannot run here: {known.cannot_run}.", code="cannot_run", hint=hint)
    if known.secret_at:
        return AdmissionError(
            f"{name} is not started: its file has a secret at {known.secret_at}, "
            "which the engine would show to others.",
            code="secret_in_profile",
            hint="Name the variable in `env_from` and set it in the daemon's environment. "
            "`sparkdash profiles check` shows the line.",
        )
    return None


def nothing_to_pull(profile: Profile, *, containerised: bool) -> SparkdashError | None:
    why = profile.fetches_nothing or (
        None if containerised else "the daemon starts plain processes, which need no image"
    )
    if why:
        return AdmissionError(f"There is no image to fetch for {profile.name}: {why}.", code="nothing_to_pull")
    return None


def not_stalled(name: str) -> SparkdashError:
    return AdmissionError(
        f"{name} has no load that stands still, so there is nothing to extend.", code="not_stalled", status=409
    )


def shutting_down() -> SparkdashError:
    return DaemonError("sparkdash is shutting down.", code="shutting_down", retry_after=10.0)


def holders(foreign: Sequence[Holding]) -> str | None:
    named = ", ".join(f"{one_line(one.name)} {gib(one.bytes)}" for one in foreign[:NAMED])
    return f"Others hold memory: {named}." if named else None


def unplaced(
    name: str, known: ProfileFacts, usable: Sequence[str], unusable: Mapping[str, str], cables: Cables
) -> SparkdashError:
    """Build the refusal of a profile that lacks nodes; `unusable` are nodes with the reason."""
    there = [*usable, *unusable]
    if known.node is not None and known.node not in there:
        return AdmissionError(
            f"{name} runs on the node {known.node}, and there is no such node.",
            code="node_unknown",
            hint=f"Add it with `sparkdash nodes add {known.node} --ssh USER@HOST`, or change `node` in the profile.",
        )
    if min(known.counts) > len(there):
        have = "1 is" if len(there) == 1 else f"{len(there)} are"
        return AdmissionError(
            f"{name} needs {_either(known.counts)} nodes, and {have} known.",
            code="needs_two_nodes",
            hint="Add another box with `sparkdash nodes add NAME --ssh USER@HOST`.",
        )
    if known.node is None and not any(groups(there, count, cables, known.topologies) for count in known.counts):
        return _nodes_apart(name, known, cables)
    return _nodes_unreachable(name, known, unusable)


def _either(counts: Sequence[int]) -> str:
    return " or ".join(map(str, sorted(counts)))


_CONNECTED = {
    Topology.DIRECT: "on one cable",
    Topology.RING: "in a ring",
    Topology.LINE: "in a line",
    Topology.SWITCH: "behind a switch",
}


def _nodes_apart(name: str, known: ProfileFacts, cables: Cables) -> SparkdashError:
    """Build the refusal of a profile for whose nodes the cables are wrong."""
    wanted = [each for each in known.topologies or sorted(ASSUMED) if each != Topology.DIRECT or 2 in known.counts]
    connected = " or ".join(map(_CONNECTED.__getitem__, wanted))
    return AdmissionError(
        f"{name} needs {_either(known.counts)} boxes {connected}. {_cables_seen(cables)}.",
        code="nodes_apart",
        hint="`sparkdash doctor` shows how the boxes are connected. Write `topologies: [line]` in the profile if the "
        "engine's NCCL needs no closed ring, as sparkring's.",
    )


def _cables_seen(cables: Cables) -> str:
    pairs = sorted({tuple(sorted((one, other))) for one, near in cables.items() for other in near})
    seen = ", ".join("-".join("this box" if end == LOCAL else end for end in pair) for pair in pairs)
    return f"There are the cables {seen}" if seen else "There are no cables from box to box"


def _nodes_unreachable(name: str, known: ProfileFacts, unusable: Mapping[str, str]) -> SparkdashError:
    named = {node: reason for node, reason in unusable.items() if known.node in (None, node)} or unusable
    why = "; ".join(reason if reason.startswith(node) else f"{node}: {reason}" for node, reason in named.items())
    what = f"the node {known.node}" if known.node else f"{_either(known.counts)} nodes"
    return AdmissionError(
        f"{name} needs {what}, and not all can be used now. {why}",
        code="node_unreachable",
        status=503,
        retry_after=RETRY_S,
        hint=(f"`sparkdash use {known.fallbacks[0]}` starts its fallback. " if known.fallbacks else "")
        + "`sparkdash nodes` shows the state of each node.",
    )


def no_room(name: str, need: Need, choice: Choice, boxes: Mapping[str, BoxMemory]) -> SparkdashError:
    node = choice.tightest
    box, several = boxes.get(node, BoxMemory()), len(boxes) > 1
    needs = _needs(name, need, choice)
    if choice.pinned:
        return _pinned_stay(name, needs, choice)
    whole = box.total is not None and choice.needs is not None and choice.needs + box.reserve > box.total
    where = "this box" if node == LOCAL else node
    had = f"{gib(choice.available)} can be freed beyond it{f' on {where}' if several else ''}"
    found = f"{where} has {gib(box.total)} in all" if whole else had
    return AdmissionError(
        f"{needs} and {gib(box.reserve)} are kept in reserve; {found}.",
        code="does_not_fit",
        status=503,
        holders=box.holders,
        hint="Stop what else holds memory, choose a smaller context or KV cache, or lower `reserve_gib`.",
    )


def _needs(name: str, need: Need, choice: Choice) -> str:
    """Say what the profile needs, with the terms of the sum where there are several."""
    each = " on each node" if len(choice.nodes) > 1 else ""
    terms = " + ".join(f"{term.name} {gib(term.bytes)}" for term in need.terms)
    return f"{name} needs {gib(choice.needs)}{each}" + (f" ({terms})" if len(need.terms) > 1 else "")


def _pinned_stay(name: str, needs: str, choice: Choice) -> SparkdashError:
    one, them = ("is", "it") if len(choice.pinned) == 1 else ("are", "them")
    return AdmissionError(
        f"{needs}; {gib(choice.available)} can be freed. "
        f"{', '.join(choice.pinned)} {one} pinned: no request stops {them}.",
        code="pinned",
        status=503,
        hint=f"`sparkdash use {name}` stops {them}; or remove `pinned` from the policy in config.toml.",
    )


def not_offered(name: str, choice: Choice, cause: SwapCause) -> SparkdashError:
    repair = cause is SwapCause.REPAIR
    what = "not started again after it was stuck" if repair else "not preloaded"
    return AdmissionError(
        f"{name} was {what}: it needs {gib(choice.needs)}, and beside what runs it does not fit.",
        code="not_restarted" if repair else "not_preloaded",
        hint="A request that names it, or `sparkdash use`, makes room.",
    )


def too_many(name: str, limit: int) -> SparkdashError:
    return AdmissionError(
        f"{name} serves {counted(limit, 'request')} at once, and as many are there.",
        code="too_many_requests",
        status=429,
        retry_after=RETRY_S,
        hint="Come back later, or raise `max_concurrency` in config.toml.",
    )


def no_engine(task: Task | None = None) -> SparkdashError:
    what = f"No running engine can {task.value}" if task else "No engine runs"
    return AdmissionError(
        f"{what}, and 'auto' never starts one.",
        code="no_engine",
        status=503,
        hint="Name a profile as the model; `sparkdash profiles` lists them.",
    )


def no_autocomplete(profile: str, *, comes: bool) -> SparkdashError:
    """Build the refusal of an autocomplete request.

    Its words hold "unexpected server status", Ollama's while a model loads: Continue shows any other error to its user.
    """
    why = "is not loaded yet" if comes else "does not run, and autocomplete evicts no engine"
    return AdmissionError(
        f"{profile} {why} (unexpected server status).",
        code="autocomplete_not_ready",
        status=503,
        retry_after=RETRY_S,
        hint="Ask again later." if comes else f"`sparkdash use {profile}` loads it.",
    )


def queue_full(limit: int) -> SparkdashError:
    return AdmissionError(
        f"{limit} requests wait already.",
        code="queue_full",
        status=503,
        retry_after=RETRY_S,
        hint="Come back later, or raise `queue_limit` in config.toml.",
    )


def stopped(profile: str | None) -> SparkdashError:
    what = profile or "Everything"
    return AdmissionError(f"{what} was stopped while this request waited.", code="stopped", status=503)


def cancelled(profile: str | None) -> SparkdashError:
    return AdmissionError(
        f"The start of {profile} was cancelled while this request waited.", code="cancelled", status=503
    )


def cut(target: str | None) -> SparkdashError:
    """Build the reason of a lease that outlived the drain; for a person's stop one with which no request comes back."""
    why = f"to make room for {target}" if target else "because its engine was stopped"
    message = f"This request was cut {why}, after the drain limit."
    hint = "Raise `drain_s` in config.toml if answers need longer."
    if target is None:
        return EngineError(message, code=CUT, hint=hint)
    return UpstreamError(message, code=CUT, hint=hint, status=503, retry_after=RETRY_S)


def cut_short(error: SparkdashError) -> SparkdashError:
    """Build the error of a lease whose engine died, or got stuck, while a person stops it."""
    return EngineError(f"{error.message} The request was cut, as a person stops the engine.", code=CUT)
