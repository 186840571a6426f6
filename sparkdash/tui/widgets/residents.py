"""Panel of the engines beside the one on the card, one row each."""

from __future__ import annotations

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import EngineSample, Metric
from sparkdash.tui.ink import EMPTY, Ink, Line, clip, inked, join
from sparkdash.tui.lines import stuck_engine, words
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.panel import Panel
from sparkdash.units import number, percent

MOST = 3
"""Most rows: a Spark holds few engines, and the requests below need room."""


class Residents(Panel):
    """Rows of the other engines, up to MOST."""

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as tall as needed
        """Return a row for each other engine."""
        engines = view.snapshot.engines.values() if view.snapshot else ()
        others = [engine for engine in engines if engine is not view.engine and not _is_coming(engine, view)]
        return [clip(_row(engine, view), width) for engine in others[:MOST]]


def _is_coming(engine: Engine, view: View) -> bool:
    """Whether the engine is the swap's target, which the card shows."""
    return view.swap is not None and view.swap.target == engine.profile


def _row(engine: Engine, view: View) -> Line:
    head = inked(" + ", Ink.FAINT) + inked(f"{engine.profile} ", Ink.STRONG) + words.engine_state(engine, view)
    if engine.state is EngineState.FAILED and engine.failure:
        return head + inked(f"  {engine.failure.message}", Ink.BAD)
    if step := stuck_engine.stuck_step(engine, view):
        return head + inked(f"  {step}", Ink.BAD)
    sample = view.engine_sample(engine.profile) or EngineSample(at=0.0)
    rate = inked(f"{number(sample.get(Metric.DECODE), 1)} tok/s", Ink.PLAIN)
    kv = inked("kv ", Ink.DIM) + inked(percent(sample.get(Metric.KV_USED)), Ink.PLAIN)
    boxes = view.boxes(engine.nodes)
    return join([head, rate, kv, inked(f"on {boxes}", Ink.DIM) if boxes else EMPTY], inked("   "))
