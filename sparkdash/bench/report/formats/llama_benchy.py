"""Speed cells as CSV in the sixteen columns of llama-benchy 0.4, a row for each test of each arm.

Pure.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, pstdev

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch, fixed_time_s, request_figure
from sparkdash.bench.results import RequestSample, Results
from sparkdash.bench.run import CellKey, Kind

MEASURES = ("t_s", "t_s_req", "peak_ts", "peak_ts_req", "ttfr", "est_ppt", "e2e_ttft")
COLUMNS = ("model", "test_name", *(f"{one}_{part}" for one in MEASURES for part in ("mean", "std")))

_MS = 1000.0


def render_csv(results: Results) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(results))
    return out.getvalue()


def _rows(results: Results) -> Iterator[dict[str, str]]:
    keys = [cell.key for cell in results.run.cells if cell.key.kind is Kind.SPEED]
    crowded = any(key.concurrency > 1 for key in keys)
    label = " (simulated)" if results.run.simulated else ""
    for arm in results.run.arms:
        fixed_s = fixed_time_s(results, arm.name)
        for key in keys:
            if samples := results.good(arm.name, key):
                together = results, arm.name, key
                for name, measures in (
                    (f"pp{key.context}", _prefill(samples, fixed_s)),
                    (f"tg{key.output}", _decode(together, samples)),
                ):
                    if any(measures.values()):
                        test = name + _suffix(key, name.startswith("tg"), crowded)
                        yield {"model": arm.name + label, "test_name": test, **_told(measures)}


def _suffix(key: CellKey, decode: bool, crowded: bool) -> str:
    depth = f" @ d{key.context}" if decode and key.context else ""
    warm = " (warm)" if key.warm else ""
    return depth + (f" (c{key.concurrency})" if crowded else "") + warm


def _prefill(samples: Sequence[RequestSample], fixed_s: float) -> dict[str, list[float]]:
    rates = _each(samples, lambda one: request_figure(one, BenchMetric.PREFILL, fixed_s))
    if not rates:
        return {}
    return {
        "t_s": rates,
        "t_s_req": rates,
        "ttfr": _each(samples, lambda one: one.ttfr_s, _MS),
        "est_ppt": _each(samples, lambda one: None if one.ttft_s is None else one.ttft_s - fixed_s, _MS),
        "e2e_ttft": _each(samples, lambda one: one.ttft_s, _MS),
    }


def _decode(where: tuple[Results, str, CellKey], samples: Sequence[RequestSample]) -> dict[str, list[float]]:
    """Return decode rates. With concurrent requests `t_s` is the aggregate."""
    rates = _each(samples, lambda one: one.decode_tok_s)
    total = rates
    if where[2].concurrency > 1:
        total = [one for ones in figures_by_launch(*where, BenchMetric.AGGREGATE).values() for one in ones.values()]
    return {"t_s": total, "t_s_req": rates}


def _each(
    samples: Sequence[RequestSample], get: Callable[[RequestSample], float | None], scale: float = 1.0
) -> list[float]:
    return [value * scale for one in samples if (value := get(one)) is not None]


def _told(measures: dict[str, list[float]]) -> dict[str, str]:
    found = {}
    for name, values in measures.items():
        if values:
            found[f"{name}_mean"] = repr(fmean(values))
            found[f"{name}_std"] = repr(pstdev(values))
    return found
