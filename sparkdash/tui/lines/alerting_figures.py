"""Figures beyond a limit of config.toml, made red in lines that are drawn already.

Owns: the labels under which figures stand. Rule: a figure follows its label in the same line.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from sparkdash.domain.metric import Metric
from sparkdash.tui.ink import Ink, Line
from sparkdash.tui.mirror import View

LABELS = {
    "prompt": Metric.PROMPT_SPEED,
    "ttft": Metric.TTFT_P50,
    "p95": Metric.TTFT_P95,
    "prefix": Metric.PREFIX_HIT,
    "kv": Metric.KV_USED,
    "accept": Metric.ACCEPTANCE,
}


def with_alerts(lines: list[Line], view: View, profile: str) -> list[Line]:
    """Make the figures of an engine red that are beyond a limit."""
    bad = {label for label, metric in LABELS.items() if view.is_alerting(profile, metric.value)}
    return [_reddened(line, bad) for line in lines] if bad else lines


def _reddened(line: Line, labels: Collection[str]) -> Line:
    spans, due = list(line), False
    for place, span in enumerate(spans):
        text = span.text.strip()
        if due and text:
            spans[place], due = span._replace(ink=Ink.BAD), False
        due = due or text in labels
    return tuple(spans)
