"""Submission of one arm to localmaxxing.

Owns: the payload's shape. hfId, hardware, engineName, quantization and tokSOut are required, and one of the other
rates.
Rule: an unknown field is null and named, for the owner to fill. A simulated run makes no submission.
Pure.
"""

from __future__ import annotations

from typing import Any

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.records import Provenance
from sparkdash.bench.report import cell_names
from sparkdash.bench.report.report import ArmReport, Report
from sparkdash.bench.run import CellKey
from sparkdash.errors import AdmissionError

SPARK = {
    "hwClass": "UNIFIED",
    "chipVendor": "NVIDIA",
    "chipFamily": "GB10 Blackwell",
    "chipVariant": "DGX Spark",
    "unifiedMemoryGb": 128,
}
REQUIRED = ("hfId", "hardware", "engineName", "quantization", "tokSOut")
PREFERRED_OUTPUT = 128


def build_submission(report: Report, arm: str | None = None, *, hf: str | None = None) -> dict[str, Any]:
    """Build the submission of an arm (default: the baseline) from the single-stream cell nearest to tg128.

    Raises:
        AdmissionError: `run_simulated`, `arm_not_found`, `nothing_measured`.
    """
    if report.simulated:
        raise AdmissionError(
            "This run is simulated: its figures are invented and are submitted nowhere.", code="run_simulated"
        )
    name = arm or report.run.baseline
    told = _find_arm(report, name).provenance or Provenance()
    key = _cell(report, name)
    ttft = _median(report.figure(BenchMetric.TTFT, name, key))
    return {
        "hfId": hf or _hub_name(told.model),
        "hardware": SPARK if report.run.host.gpu and "GB10" in report.run.host.gpu else None,
        "engineName": told.engine,
        "engineVersion": told.engine_version,
        "quantization": None,
        "tokSOut": _median(report.figure(BenchMetric.DECODE, name, key)),
        "tokSPrefill": _median(report.figure(BenchMetric.PREFILL, name, key)),
        "ttftMs": None if ttft is None else ttft * 1000,
        "promptTokens": key.context,
        "outputTokens": key.output,
        "batchSize": key.concurrency,
        "engineFlags": _engine_flags(report, name, key, told),
    }


def _find_arm(report: Report, name: str) -> ArmReport:
    found = report.arm(name)
    if found is None:
        raise AdmissionError(
            f"The run has no arm {name}.",
            code="arm_not_found",
            status=404,
            hint=f"It has {', '.join(one.name for one in report.arms)}.",
        )
    return found


def _engine_flags(report: Report, arm: str, key: CellKey, told: Provenance) -> dict[str, Any]:
    speculation = next((one for one in report.speculation if (one.arm, one.key) == (arm, key)), None)
    method, count = cell_names.parse_speculation(told.speculation)
    return {
        "commandSnippet": " ".join(told.argv) or None,
        "concurrency": key.concurrency,
        "kvCacheDtype": told.kv_dtype,
        "specMethod": method or None,
        "specNumTokens": count,
        "specMeanAcceptedLength": speculation.acceptance_length if speculation else None,
        "temperature": told.temperature,
    }


def missing_fields(payload: dict[str, Any]) -> tuple[str, ...]:
    """Return the required fields that this run does not know."""
    return tuple(name for name in REQUIRED if payload[name] is None)


def _cell(report: Report, arm: str) -> CellKey:
    measured = [
        key
        for key in report.planned()
        if key.concurrency == 1 and not key.warm and _median(report.figure(BenchMetric.DECODE, arm, key)) is not None
    ]
    if not measured:
        raise AdmissionError(f"No single-stream cell of {arm} is measured yet.", code="nothing_measured")
    return min(measured, key=lambda one: (abs(one.output - PREFERRED_OUTPUT), one.context))


def _hub_name(model: str | None) -> str | None:
    """Return `org/name` unchanged; None for a local path."""
    return model if model and not model.startswith("/") and model.count("/") == 1 else None


def _median(figure: ArmFigure | None) -> float | None:
    return figure.median if figure else None
