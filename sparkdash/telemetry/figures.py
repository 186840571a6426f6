"""Raw figures for the judgement of an engine's liveness, out of one reading.

Owns: which figures count as movement. Must not know scrapes, clocks, or when an engine is stuck.

Pure.
"""

from __future__ import annotations

from itertools import zip_longest

from sparkdash.domain.figures import EngineFigures
from sparkdash.engines.adapter import MetricNames
from sparkdash.telemetry.reading import Reading


def figures_of(reading: Reading, names: MetricNames, before: EngineFigures) -> EngineFigures:
    """Raw figures of this reading; a counter that it lacks keeps its value of `before`."""
    counters, gauges = reading.counters, reading.gauges
    moving = (*reading.moving, *reading.moving_without_slots)
    told = (counters.generated, counters.prompted, counters.preemptions, *moving)
    earlier = before.progress[: len(told)]
    return EngineFigures(
        answered_at=reading.at,
        running=gauges.running,
        waiting=gauges.waiting,
        deferred=gauges.deferred,
        kv_used=gauges.kv_used,
        asleep=None if gauges.awake is None else gauges.awake == 0,
        progress=tuple(was if now is None else now for now, was in zip_longest(told, earlier)),
        prompt_progress=before.prompt_progress if counters.prefilled is None else counters.prefilled,
        uses_queue=names.slots is not None,
        is_live=names.is_live,
    )
