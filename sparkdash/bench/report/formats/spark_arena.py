"""Files of a submission to Spark Arena: recipe.yaml, benchmark.csv and metadata.json of one arm.

Owns: their shapes, which are sparkrun's, and which cells stand under which of llama-benchy's rows. Must not know: how a
recipe is made from a profile, uploads.
Rule: the Arena's prompts are 2048 tokens behind a depth that the prefix cache may hold; sparkdash's whole prompts are
cold. So `tg` rows are filled at every depth, `pp` at depth 0 alone. A simulated run makes no submission.
Pure.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev
from typing import Any

from sparkdash import __version__
from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch, fixed_time_s, request_figure
from sparkdash.bench.records import Provenance, RequestSample
from sparkdash.bench.report.formats.llama_benchy import COLUMNS
from sparkdash.bench.report.formats.localmaxxing import find_arm, hub_name
from sparkdash.bench.report.formats.quantization_label import quantization_label
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.weights import WeightFacts
from sparkdash.errors import AdmissionError

PROMPT = 2048
"""Tokens of a prompt behind its depth."""
SUITE = "arena"


def build_files(
    results: Results, report: Report, recipe: str, arm: str | None = None, *, weights: WeightFacts | None = None
) -> dict[str, str]:
    """Build the files by name. `recipe` is the arm's profile as a sparkrun recipe.

    Raises:
        AdmissionError: `run_simulated`, `arm_not_found`, `nothing_measured`, or `suite_differs`.
    """
    refuse_unfit(report)
    name = arm or report.run.baseline
    told = find_arm(report, name).provenance or Provenance()
    rows = list(_rows(results, name, hub_name(told.model) or told.model or name))
    if not rows:
        raise AdmissionError(f"No cell of {name} is measured yet.", code="nothing_measured")
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    document = _metadata(results, report, name, told, recipe, quantization_label(weights, told.argv, told.model))
    return {
        "recipe.yaml": recipe if recipe.endswith("\n") else f"{recipe}\n",
        "benchmark.csv": out.getvalue(),
        "metadata.json": json.dumps(document, indent=2) + "\n",
    }


def refuse_unfit(report: Report) -> None:
    """Raise AdmissionError for a simulated run, or one of another suite."""
    if report.simulated:
        raise AdmissionError(
            "This run is simulated: its figures are invented and are submitted nowhere.", code="run_simulated"
        )
    if report.run.suite != SUITE:
        raise AdmissionError(
            f"Spark Arena compares one grid of cells; this run measured the suite {report.run.suite}.",
            code="suite_differs", hint=f"Measure with `--suite {SUITE}`.",
        )  # fmt: skip


def _rows(results: Results, arm: str, model: str) -> Iterator[dict[str, str]]:
    fixed_s = fixed_time_s(results, arm)
    for key in (cell.key for cell in results.run.cells):
        samples = results.good(arm, key)
        if samples and key.kind is Kind.SPEED and key.context >= PROMPT:
            yield from _prefill_row(model, key, samples, fixed_s)
            yield from _decode_row(results, arm, model, key)


def _prefill_row(
    model: str, key: CellKey, samples: Sequence[RequestSample], fixed_s: float
) -> Iterator[dict[str, str]]:
    prefill = _values(samples, BenchMetric.PREFILL, fixed_s)
    if prefill and key.context == PROMPT:
        first = [1000.0 * value for value in _values(samples, BenchMetric.TTFT)]
        yield _row(model, f"pp{PROMPT} (c{key.concurrency})", t_s=prefill, t_s_req=prefill, e2e_ttft=first)


def _decode_row(results: Results, arm: str, model: str, key: CellKey) -> Iterator[dict[str, str]]:
    rates = _values(results.good(arm, key), BenchMetric.DECODE)
    depth = f" @ d{key.context - PROMPT}" if key.context > PROMPT else ""
    if rates:
        whole = rates if key.concurrency == 1 else _aggregate(results, arm, key)
        yield _row(model, f"tg{key.output}{depth} (c{key.concurrency})", t_s=whole, t_s_req=rates)


def _values(samples: Sequence[RequestSample], metric: BenchMetric, fixed_s: float = 0.0) -> list[float]:
    return [value for one in samples if (value := request_figure(one, metric, fixed_s)) is not None]


def _aggregate(results: Results, arm: str, key: CellKey) -> list[float]:
    by_launch = figures_by_launch(results, arm, key, BenchMetric.AGGREGATE)
    return [value for values in by_launch.values() for value in values.values()]


def _row(model: str, test: str, **measures: list[float]) -> dict[str, str]:
    row = {"model": model, "test_name": test}
    for name, values in measures.items():
        if values:
            row |= {f"{name}_mean": repr(fmean(values)), f"{name}_std": repr(pstdev(values))}
    return row


def _metadata(
    results: Results, report: Report, arm: str, told: Provenance, recipe: str, label: str | None
) -> dict[str, Any]:
    run = report.run
    facts = {"engine_version": told.engine_version, "driver": told.driver, "kernel": told.kernel}
    return {
        "recipe": _recipe(find_arm(report, arm).profile, told, recipe),
        "timing": _timing(results, arm),
        "cluster": {"hosts": 1, "gpu": run.host.gpu},
        "benchmark": {
            "framework": "sparkdash",
            "profile": SUITE,
            "args": {"pp": [PROMPT], "tg": [128], "runs": min((cell.reps for cell in run.cells), default=0)},
            "suite": f"{run.suite} {run.suite_version}",
            "suite_hash": run.suite_hash,
            "note": "Whole prompts are cold. tg: (tokens - first chunk's) / (last - first token); pp at depth 0 alone.",
        },
        "model": _known({"revision": told.model_revision, "quantization": label, "kv_dtype": told.kv_dtype}),
        "runtime_info": _known({**facts, "speculation": told.speculation}),
        "sparkdash": {"version": run.version or __version__},
    }


def _recipe(profile: str, told: Provenance, recipe: str) -> dict[str, Any]:
    pinned = told.image is not None and told.image_digest is not None
    return {
        "name": profile,
        "type": "sparkdash",
        "model": told.model,
        "hf_model": hub_name(told.model),
        "raw_container": told.image,
        "container": f"{told.image}@{told.image_digest}" if pinned else told.image,
        "container_pinned": pinned,
        "runtime": told.engine,
        "runtime_full": told.engine,
        "hash": hashlib.sha256(recipe.encode()).hexdigest(),
    }


def _timing(results: Results, arm: str) -> dict[str, Any]:
    cells = [one for one in results.cells if one.arm == arm]
    start = min((one.started_at for one in cells), default=results.run.created_at)
    end = max((one.ended_at for one in cells), default=results.run.created_at)
    return {"start": start.isoformat(), "end": end.isoformat(), "duration": (end - start).total_seconds()}


def _known(facts: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value is not None}
