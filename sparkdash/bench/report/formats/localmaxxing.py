"""Submission of one arm to localmaxxing.

Owns: the payload's shape. hfId, hardware, engineName, quantization and tokSOut are required, and one of the other
rates. The site's reference names the other keys; it takes no others.
Rule: an unknown required field is null and named, for the owner to fill; other unknown fields are left out. A simulated
run makes no submission.
Pure.
"""

from __future__ import annotations

from typing import Any

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.records import Provenance
from sparkdash.bench.report.formats.quantization_label import quantization_label
from sparkdash.bench.report.report import ArmReport, Report
from sparkdash.bench.run import CellKey
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.roofline import parse_speculation
from sparkdash.errors import AdmissionError

SPARK = {
    "hwClass": "UNIFIED",
    "chipVendor": "NVIDIA",
    "chipFamily": "GB10 Blackwell",
    "chipVariant": "DGX Spark",
    "unifiedMemoryGb": 128,
}
REQUIRED = ("hfId", "hardware", "engineName", "quantization", "tokSOut")
ENGINE_NAMES = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "trtllm": "tensorrt-llm"}
"""Engine kinds as the site names them; it takes only names of its own list (GET /api/agent-context)."""
PREFERRED_OUTPUT = 128


SECONDARY = ("tokSPrefill", "tokSTotal", "ttftMs", "peakVramGb")
"""Rates of which one is required beside tokSOut."""


def build_submission(
    report: Report, arm: str | None = None, *, hf: str | None = None, weights: WeightFacts | None = None
) -> dict[str, Any]:
    """Build the submission of an arm (default: the baseline) from the single-stream cell nearest to tg128.

    Raises:
        AdmissionError: `run_simulated`, `arm_not_found`, `nothing_measured`.
    """
    if report.simulated:
        raise AdmissionError(
            "This run is simulated: its figures are invented and are submitted nowhere.", code="run_simulated"
        )
    name = arm or report.run.baseline
    told = find_arm(report, name).provenance or Provenance()
    key = _cell(report, name)
    on_spark = "GB10" in (report.run.host.gpu or "")
    payload = {
        "hfId": hf or hub_name(told.model),
        "modelRevision": told.model_revision,
        "hardware": SPARK if on_spark else None,
        "engineName": ENGINE_NAMES.get(told.engine or ""),
        "engineVersion": told.engine_version,
        "quantization": quantization_label(weights, told.argv, told.model),
        "backend": "cuda" if on_spark else None,
        **_rates(report, name, key),
        "promptTokens": key.context or None,
        "prefillTokens": 0,
        "outputTokens": key.output,
        "batchSize": key.concurrency,
        "engineFlags": _known(_engine_flags(report, name, key, told)),
        "notes": f"sparkdash bench, suite {report.run.suite} {report.run.suite_version}, run {report.run.id}",
    }
    return dict.fromkeys(REQUIRED) | _known(payload)


def _rates(report: Report, arm: str, key: CellKey) -> dict[str, float | None]:
    ttft = _median(report.figure(BenchMetric.TTFT, arm, key))
    return {
        "tokSOut": _median(report.figure(BenchMetric.DECODE, arm, key)),
        "tokSPrefill": _median(report.figure(BenchMetric.PREFILL, arm, key)),
        "ttftMs": None if ttft is None else ttft * 1000,
    }


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def find_arm(report: Report, name: str) -> ArmReport:
    """Return the arm of that name. Raises AdmissionError."""
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
    method, count = parse_speculation(told.speculation)
    return {
        "commandSnippet": " ".join(told.argv) or None,
        "concurrency": key.concurrency,
        "kvCacheDtype": told.kv_dtype,
        "specDecoding": bool(method) if told.fingerprint is not None else None,
        "specMethod": method or None,
        "specNumTokens": count,
        "specMeanAcceptedLength": speculation.acceptance_length if speculation else None,
        "temperature": told.temperature,
    }


def missing_fields(payload: dict[str, Any]) -> tuple[str, ...]:
    """Return the required fields that this run does not know."""
    missing = tuple(name for name in REQUIRED if payload.get(name) is None)
    return missing if any(name in payload for name in SECONDARY) else (*missing, " or ".join(SECONDARY))


def _cell(report: Report, arm: str) -> CellKey:
    measured = [
        key
        for key in report.planned()
        if key.concurrency == 1 and not key.warm and _median(report.figure(BenchMetric.DECODE, arm, key)) is not None
    ]
    if not measured:
        raise AdmissionError(f"No single-stream cell of {arm} is measured yet.", code="nothing_measured")
    return min(measured, key=lambda one: (abs(one.output - PREFERRED_OUTPUT), one.context))


def hub_name(model: str | None) -> str | None:
    """Return `org/name` unchanged; None for a local path."""
    return model if model and not model.startswith("/") and model.count("/") == 1 else None


def _median(figure: ArmFigure | None) -> float | None:
    return figure.median if figure else None
