"""Words and glyphs of every state, shared by all panels.

Rule: every state has a glyph and a word, so that nothing depends on colour. Pure.
"""

from sparkdash.domain.engine import Engine, EngineState, LivenessState
from sparkdash.domain.memory import Basis
from sparkdash.domain.phrases import time_left, waiting_on
from sparkdash.domain.profile import AUTO, ProfileSummary
from sparkdash.domain.request import ASIDES, Request, RequestState
from sparkdash.domain.state import OPEN
from sparkdash.domain.swap import Plan, Swap, SwapCause, SwapOutcome
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.text import Line, Style, dimmed, styled
from sparkdash.units import DASH, gib, tokens
from sparkdash.units import age as age

ENGINE: dict[EngineState, tuple[str, Style]] = {
    EngineState.ABSENT: ("○", Style.DIM),
    EngineState.CREATING: ("◌", Style.PLAIN),
    EngineState.LOADING: ("◔", Style.PLAIN),
    EngineState.WARMING: ("◑", Style.PLAIN),
    EngineState.READY: ("●", Style.GOOD),
    EngineState.DRAINING: ("◕", Style.WARN),
    EngineState.STOPPING: ("◌", Style.WARN),
    EngineState.FAILED: ("✗", Style.BAD),
}

STANDING: dict[LivenessState, tuple[str, Style]] = {
    LivenessState.COMPILING: ("◌", Style.PLAIN),
    LivenessState.SILENT: ("!", Style.WARN),
    LivenessState.STUCK: ("✗", Style.BAD),
}
"""Liveness states that are shown in place of the engine's own state."""

CAUSES: dict[SwapCause, str] = {
    SwapCause.REQUEST: "a request asked for it",
    SwapCause.USER: "started by hand",
    SwapCause.BENCH: "started by a benchmark",
    SwapCause.IDLE: "idle for too long",
    SwapCause.FALLBACK: "the swap before failed",
    SwapCause.ADOPT: "begun by an earlier daemon",
    SwapCause.PRELOAD: "preloaded",
    SwapCause.SET: "started with its set",
    SwapCause.REPAIR: "the engine was stuck",
    SwapCause.DEFAULT: "back to the default, as nobody used the others",
}

OUTCOMES: dict[SwapOutcome, tuple[str, Style]] = {
    SwapOutcome.DONE: ("✓ done", Style.GOOD),
    SwapOutcome.FAILED: ("✗ failed", Style.BAD),
    SwapOutcome.CANCELLED: ("⊘ cancelled", Style.WARN),
}

REQUESTS: dict[RequestState, tuple[str, Style]] = {
    RequestState.WAITING: ("◌ waits", Style.WARN),
    RequestState.PREFILL: ("▷ prefill", Style.PLAIN),
    RequestState.STREAMING: ("▶ decodes", Style.GOOD),
    RequestState.DONE: ("✓ done", Style.DIM),
    RequestState.FAILED: ("✗ failed", Style.BAD),
    RequestState.GONE: ("⊘ left", Style.DIM),
}


def engine_name(profile: ProfileSummary | None, engine: Engine | None = None) -> str:
    """Name the engine and its version: the running one's own, else the profile's."""
    of = engine.kind if engine else profile.engine if profile else None
    if of is None:
        return DASH
    version = (engine.version if engine else None) or (profile.engine_version if profile else None)
    if profile and of is profile.engine and profile.server:
        return " ".join(filter(None, (profile.server, version)))
    from sparkdash.engines.registry import adapter  # a twentieth of the start; the first frame names no engine

    return " ".join(filter(None, (adapter(of).title, version)))


def engine_state(engine: Engine, view: View) -> Line:
    """Format glyph, state and duration: "● ready 2h14m"; dimmed while the link is lost.

    The minutes of an engine that serves stand still for as long: its row is not drawn anew each second.
    """
    (glyph, style), name = ENGINE[engine.state], str(engine.state)
    since = engine.ready_at if engine.state is EngineState.READY and engine.ready_at else engine.since
    seconds = view.known_at - since
    if (live := engine.liveness) is not None and live.state in STANDING:
        (glyph, style), name = STANDING[live.state], str(live.state)
        seconds = max(0.0, view.known_at - live.since)
    settled = name == EngineState.READY and 60 <= seconds < 3600
    line = styled(f"{glyph} {name}", style)
    line += styled(f" {int(seconds) // 60}m" if settled else f" {age(seconds)}", Style.PLAIN)
    return line if view.connection is ConnectionState.LIVE else dimmed(line)


WHOLE_CODE = 14
"""Letters of an error code that 80 columns have room for, behind its glyph."""


def request_state(request: Request, view: View) -> Line:
    """Format glyph and state of a request.

    A waiting request shows the reason if known; a finished side request (embeddings and the like) shows its route.
    """
    word, style = REQUESTS[request.state]
    if stuck_on(request, view):
        return styled("✗ engine stuck", Style.BAD)
    if request.state is RequestState.WAITING:
        return styled(word + _wait(request, view), style)
    if request.state is RequestState.FAILED:
        why = str(request.error or request.status or "failed")
        return styled(f"✗ {why.removeprefix('engine_') if len(why) > WHOLE_CODE else why}", style)
    if request.state is RequestState.DONE and request.route in ASIDES:
        return styled(f"✓ {request.route.rpartition('/')[2]}", style)  # it has no figures: what was it?
    if request.state is RequestState.DONE and request.finish_reason:
        return styled(f"✓ {request.finish_reason}", style)
    return styled(word, style)


def stuck_on(request: Request, view: View) -> str:
    """Describe the repair of the stuck engine that an open request depends on; empty for other requests."""
    engine = view.snapshot.engines.get(request.profile) if view.snapshot and request.state in OPEN else None
    return waiting_on(engine.liveness, view.now) if engine is not None else ""


def waits_for(request: Request, swap: Swap) -> bool:
    """Whether the request waits for this swap; `auto` takes any."""
    return request.state is RequestState.WAITING and request.profile in (swap.target, AUTO)


def _wait(request: Request, view: View) -> str:
    swap = next((each for each in view.swaps if waits_for(request, each)), None)
    if swap:
        rest = time_left(swap, view.now) if swap.still_since is None else None
        return f" ~{age(rest.s)}" if rest and rest.s else ": swap" if swap.still_since is None else ": stalled"
    if request.held_until is not None:
        return f" <{age(max(0.0, request.held_until - view.now))}"
    return f" #{request.position}" if request.position else ""


def context_length(length: int | None) -> str:
    """Format a context length as vendors write it: 128K for 131072, 128k for 128000."""
    return f"{length // 1024}K" if length and length % 4096 == 0 else tokens(length)


def needed_memory(plan: Plan) -> str:
    """Return the memory that a plan needs ("27 GiB"), and whether it is only estimated: it is tried all the same."""
    guess = " (estimated)" if plan.needs_bytes is not None and plan.need.basis is Basis.ESTIMATED else ""
    return f"{gib(plan.needs_bytes, 0)}{guess}"
