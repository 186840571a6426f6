"""Lines about a stuck engine: since when, what was observed, and the next repair step.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.engine import Engine, Liveness, LivenessState, RepairStep
from sparkdash.domain.phrases import repair_text, state_text, step_text
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, wrap
from sparkdash.tui.mirror import View

FOLLOWS = {
    RepairStep.WATCH: "no repair; `sparkdash stop` ends it",
    RepairStep.EVIDENCE: "then its requests are cancelled",
    RepairStep.CANCEL: "if that does not help, the engine is restarted",
    RepairStep.END: "requests wait for it",
}
"""Consequence of each repair step."""


def stuck_rows(engine: Engine, view: View, width: int) -> list[Line]:
    """Format what was observed and what is done, wrapped at `width`; empty for a healthy engine."""
    live = _stuck(engine)
    if live is None:
        return []
    told = wrap(f"✗ {state_text(live, view.now)}: {live.why}", width, Ink.BAD, limit=3)
    if live.step is not None:
        told += wrap(f"→ {step_text(live, view.now)}; {FOLLOWS[live.step]}", width, Ink.STRONG, limit=2)
    return told


def stuck_step(engine: Engine, view: View) -> str:
    """Name the repair step in a few words; empty for a healthy engine."""
    live = _stuck(engine)
    return "" if live is None else step_text(live, view.now) or live.why


def repair_summary(profile: str, view: View) -> Line:
    """Summarize how often the profile was repaired and how long that took."""
    time = view.snapshot.repairs.by_profile.get(profile) if view.snapshot else None
    return inked(repair_text(time), Ink.DIM) if time else EMPTY


def _stuck(engine: Engine) -> Liveness | None:
    live = engine.liveness
    return live if live is not None and live.state is LivenessState.STUCK else None
