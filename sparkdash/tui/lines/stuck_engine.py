"""A stuck engine on the screen: since when, what was seen, and what is done about it."""

from __future__ import annotations

from sparkdash.domain.engine import Engine
from sparkdash.domain.liveness import Liveness, LivenessState, RepairStep
from sparkdash.domain.text.repair_text import repair_text, state_text, step_text
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, wrap
from sparkdash.tui.mirror import View

FOLLOWS = {
    RepairStep.WATCH: "nothing is done; `sparkdash stop` ends it",
    RepairStep.EVIDENCE: "then its requests are cancelled",
    RepairStep.CANCEL: "if that does not help, it is ended and started again",
    RepairStep.END: "requests wait for it",
}
"""What comes after each step."""


def stuck_rows(engine: Engine, view: View, width: int) -> list[Line]:
    """What was seen and what is done, each broken at `width`; empty for an engine that moves."""
    live = _stuck(engine)
    if live is None:
        return []
    told = wrap(f"✗ {state_text(live, view.now)}: {live.why}", width, Ink.BAD, limit=3)
    if live.step is not None:
        told += wrap(f"→ {step_text(live, view.now)}; {FOLLOWS[live.step]}", width, Ink.STRONG, limit=2)
    return told


def stuck_step(engine: Engine, view: View) -> str:
    """The step in a few words; empty for an engine that moves."""
    live = _stuck(engine)
    return "" if live is None else step_text(live, view.now) or live.why


def repair_summary(profile: str, view: View) -> Line:
    """How often the profile was repaired, and how long that took."""
    time = view.snapshot.repairs.by_profile.get(profile) if view.snapshot else None
    return inked(repair_text(time), Ink.DIM) if time else EMPTY


def _stuck(engine: Engine) -> Liveness | None:
    live = engine.liveness
    return live if live is not None and live.state is LivenessState.STUCK else None
