"""Speeds of each profile on this box, kept while another profile runs.

Owns: the figures, and how ended requests and samples update them.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from sparkdash.domain.base import Frozen
from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.metric import Metric, Sample

FIGURE_WINDOW = 20
"""Requests behind a profile's median speeds."""


class Figures(Frozen):
    """Speeds of one profile on this box, kept while another runs. Rates in tokens per second."""

    requests: int = 0
    """Finished requests with a rate, of this daemon and of those before it as far as their requests are kept."""
    rates: tuple[float, ...] = ()
    """Decode rates of the last requests, oldest first."""
    ttfts: tuple[float, ...] = ()
    best: float | None = None
    acceptance: float | None = None
    acceptance_length: float | None = None
    prefix_hit: float | None = None
    load_s: float | None = None
    at: float | None = None
    """Time of the newest rate, Unix seconds."""

    @property
    def decode_tok_s(self) -> float | None:
        """Median decode rate of the last requests."""
        return median(self.rates) if self.rates else None

    @property
    def ttft_s(self) -> float | None:
        """Median time to first token of the last requests."""
        return median(self.ttfts) if self.ttfts else None


def count_requests(figures: dict[str, Figures], ended: Sequence[Request]) -> dict[str, Figures]:
    """Return the figures with the rates of ended requests."""
    served: defaultdict[str, list[Request]] = defaultdict(list)
    done = RequestState.DONE
    for request in ended:
        if request.state is done:
            served[request.profile].append(request)
    return {**figures, **{name: _grown(figures.get(name, Figures()), those) for name, those in served.items()}}


def _grown(old: Figures, done: Sequence[Request]) -> Figures:
    rates = [each.decode_tok_s for each in done if each.decode_tok_s is not None]
    ttfts = [each.ttft_s for each in done if each.ttft_s is not None]
    return old.replace(
        at=done[-1].finished_at,
        requests=old.requests + len(rates),
        rates=(*old.rates, *rates)[-FIGURE_WINDOW:],
        best=max(old.best or 0.0, *rates) if rates else old.best,
        ttfts=(*old.ttfts, *ttfts)[-FIGURE_WINDOW:],
    )


def count_sample(figures: dict[str, Figures], sample: Sample) -> dict[str, Figures]:
    """Return the figures with those of a sample of telemetry."""
    for name, engine in sample.engines.items():
        acceptance, length = engine.get(Metric.ACCEPTANCE), engine.get(Metric.ACCEPTANCE_LENGTH)
        prefix_hit = engine.get(Metric.PREFIX_HIT)
        if acceptance is None and length is None and prefix_hit is None:
            continue
        old = figures.get(name, Figures())
        new = old.replace(
            acceptance=old.acceptance if acceptance is None else acceptance,
            acceptance_length=old.acceptance_length if length is None else length,
            prefix_hit=old.prefix_hit if prefix_hit is None else prefix_hit,
            at=engine.at,
        )
        figures = {**figures, name: new}
    return figures
