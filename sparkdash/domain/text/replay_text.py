"""Words of a replay: the figures of both answers, and whether the answers are the same.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkdash.domain.history.replay import Replay
from sparkdash.domain.lease import Request, RequestState
from sparkdash.units import DASH, duration, number

_FIGURES: tuple[tuple[str, Callable[[Request], str]], ...] = (
    ("ttft", lambda one: _seconds(one.ttft_s)),
    ("decode tok/s", lambda one: number(one.decode_tok_s, 1)),
    ("in the engine", lambda one: _seconds(_served(one))),
    ("prompt tokens", lambda one: number(one.prompt_tokens)),
    ("cached tokens", lambda one: number(one.cached_tokens)),
    ("output tokens", lambda one: number(one.completion_tokens)),
    ("reasoning", lambda one: number(one.reasoning_tokens)),
    ("finish reason", lambda one: one.error or one.finish_reason or DASH),
)


def figure_rows(replay: Replay) -> list[tuple[str, str, str]]:
    """Return each figure with its value in the captured request and in the replay."""
    sides = (replay.original, replay.answer)
    rows = [(name, *(DASH if one is None else text(one) for one in sides)) for name, text in _FIGURES]
    return [(name, before, after) for name, before, after in rows]


def match_text(replay: Replay) -> str:
    """Say whether the answers are the same, or why that is not known; empty before the replay."""
    match, answer = replay.match, replay.answer
    if answer is None:
        return ""
    if match is not None and match.identical:
        return f"The answers are identical: {match.before} characters."
    if match is not None:
        return (
            f"The answers differ from character {match.differs_at} on;"
            f" the first has {match.before} characters, the replay {match.after}."
        )
    if answer.state is not RequestState.DONE:
        return f"The replay gave no whole answer: {answer.error or answer.state.value}."
    return "Whether the answers are the same is not known: the first one was not kept."


def caution_text(replay: Replay) -> str:
    """Say what makes the replay differ from the request; empty where nothing does."""
    return "The captured body lacks text that looked like a secret." if replay.redacted else ""


def _served(one: Request) -> float | None:
    return None if one.granted_at is None or one.finished_at is None else one.finished_at - one.granted_at


def _seconds(value: float | None) -> str:
    return duration(value) if value is None or value >= 10 else f"{value:.2f}s"
