"""Figures of a request as lists show them: final ones, else those of the running answer.

Rule: an estimate carries "~" until the engine has counted.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.live import LiveRequest
from sparkdash.domain.metric import Figure, Sample
from sparkdash.domain.profile import AUTO
from sparkdash.domain.state import Snapshot
from sparkdash.units import DASH, age, percent

SILENT_S = 10.0
"""Silence in the middle of an answer that is told."""
ABOUT = "~"
_PHASES = {RequestState.WAITING: "waits", RequestState.PREFILL: "prefill", RequestState.STREAMING: "decodes"}


class RequestFigures(NamedTuple):
    """Token counts and rate of one request, and whether each is an estimate."""

    prompt: int | None
    prompt_estimated: bool
    output: int | None
    output_estimated: bool
    tok_s: float | None


def live_request(request: Request, sample: Sample | None) -> LiveRequest | None:
    """Return the progress of a running request; None for an ended one, and before its first sample."""
    if sample is None or request.state not in (RequestState.PREFILL, RequestState.STREAMING):
        return None
    return sample.requests.get(request.id)


def figures_of_request(request: Request, sample: Sample | None) -> RequestFigures:
    """Choose the figures of a request, by the latest sample while it runs."""
    live = live_request(request, sample)
    guessed = request.prompt_tokens is None and request.finished_at is None
    prompt = request.prompt_estimate if guessed else request.prompt_tokens
    if live is None or live.output_tokens is None or request.state is not RequestState.STREAMING:
        return RequestFigures(prompt, guessed, *output_of_request(request), request.decode_tok_s)
    return RequestFigures(prompt, guessed, live.output_tokens, live.estimated, live.tok_s)


def output_of_request(request: Request) -> tuple[int | None, bool]:
    """Return the output tokens of an ended request, and whether they are estimated, as those of a cut answer are."""
    if request.completion_tokens is not None or request.completion_estimate is None:
        return request.completion_tokens, False
    return request.completion_estimate, True


def about(text: str, *, estimated: bool) -> str:
    """Mark the text of an estimated figure; an unknown one stays "-"."""
    return f"{ABOUT}{text}" if estimated and text != DASH else text


def figure_text(figure: Figure, text: Callable[[float | None], str]) -> str:
    """Format a figure; "~" marks one that only the gateway tells."""
    return about(text(figure.value), estimated=figure.by_gateway)


def wait_reason(request: Request, world: Snapshot) -> str:
    """Name what a waiting request waits for: "load 63 %", "queue"; empty for others, and where it is unknown."""
    if request.state is not RequestState.WAITING:
        return ""
    swap = world.swap_to(request.profile) or (world.swap if request.profile == AUTO else None)
    if swap is not None:
        share = f" {percent(swap.fraction)}" if swap.fraction is not None else ""
        return f"{swap.phase.value}{share}"
    return "queue" if request.profile in world.engines else ""


def request_phase(request: Request, sample: Sample | None, now: float, *, timed: bool = True) -> str:
    """Name what an open request does: "waits", "prefill", "decodes", "no token 40s"; the state of others.

    `timed`: with the time since it was sent to the engine.
    """
    phase = _PHASES.get(request.state)
    if phase is None:
        return request.state.value
    live = live_request(request, sample)
    if live is not None and request.state is RequestState.STREAMING and (live.silent_s or 0.0) >= SILENT_S:
        silent = (live.silent_s or 0.0) + max(0.0, now - (sample.at if sample else now))
        return f"no token {age(silent)}"
    if not timed or request.granted_at is None:
        return phase
    return f"{phase} {age(max(0.0, now - request.granted_at))}"
