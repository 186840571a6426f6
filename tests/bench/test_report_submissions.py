"""Submissions to leaderboards: whole by their published shapes, never simulated, never sent."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats import localmaxxing, spark_arena
from sparkdash.bench.report.formats.quantization_label import quantization_label
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Host
from sparkdash.cli.main import app
from sparkdash.domain.weights import WeightBytes, WeightFacts
from sparkdash.errors import AdmissionError
from sparkdash.paths import bench_dir

SCHEMA = json.loads((Path(__file__).parent / "published" / "localmaxxing.schema.json").read_text())
CELLS = {CellKey(suite="localmaxxing", context=context, output=128): 60.0 for context in (128, 2048)}
ARENA = {
    CellKey(suite="arena", context=2048 + depth, output=128, concurrency=concurrency): 60.0 / concurrency / (1 + depth / 4096)
    for depth in (0, 4096) for concurrency in (1, 2)
}  # fmt: skip
TOLD = {
    "engine": "vllm", "engine_version": "0.17.0", "model": "org/Coder-30B", "model_revision": "abc", "kv_dtype": "fp8",
    "argv": ("vllm", "serve", "org/Coder-30B", "--quantization", "modelopt_fp4"), "speculation": "mtp k=2",
    "image": "nvcr.io/x", "image_digest": "sha256:aa", "temperature": 0.0,
}  # fmt: skip
REAL = {"simulated": False, "host": Host(name="spark", gpu="NVIDIA GB10")}


def weights(**changes: Any) -> WeightFacts:
    size = WeightBytes(dense=1, experts=0, embedding=0, head=0)
    return WeightFacts.model_validate({"origin": "x", "format": "safetensors", "bytes": size, **changes})


def test_a_submission_is_whole_by_the_sites_schema(rehearse: Callable[..., Results]) -> None:
    """Every required key is known, no unknown key is sent, and nothing is null."""
    found = rehearse(
        arms=[Arm(name="plain", profile="coder")], rates={"plain": CELLS}, provenance={"plain": TOLD}, drafts={"plain": (62, 31)},
        changes={**REAL, "suite": "localmaxxing"},
    )  # fmt: skip
    payload = json.loads(json.dumps(localmaxxing.build_submission(assemble_report(found))))
    jsonschema.validate(payload, SCHEMA)
    assert localmaxxing.missing_fields(payload) == ()
    assert (payload["quantization"], payload["hfId"], payload["backend"]) == ("NVFP4", "org/Coder-30B", "cuda")
    assert payload["engineFlags"]["specDecoding"] is True
    assert payload["engineFlags"]["specMeanAcceptedLength"] == pytest.approx(1.93)


def test_what_a_submission_lacks_is_null_and_named(rehearse: Callable[..., Results]) -> None:
    """Weights in a folder have no name on the hub, and nobody told their format."""
    told = {**TOLD, "argv": ("vllm", "serve"), "model": "/models/coder"}
    found = rehearse(
        arms=[Arm(name="plain", profile="coder")], rates={"plain": CELLS}, provenance={"plain": told}, changes=REAL
    )
    payload = localmaxxing.build_submission(assemble_report(found))
    assert localmaxxing.missing_fields(payload) == ("hfId", "quantization")
    assert [key for key, value in payload.items() if value is None] == ["hfId", "quantization"]


@pytest.mark.parametrize(
    ("engine", "name"),
    [("vllm", "vllm"), ("sglang", "sglang"), ("llamacpp", "llama.cpp"), ("trtllm", "tensorrt-llm"), ("generic", None)],
)
def test_engines_have_the_names_that_the_site_takes(
    engine: str, name: str | None, rehearse: Callable[..., Results]
) -> None:
    """A server without a name there is null and named, for the owner to fill."""
    found = rehearse(
        arms=[Arm(name="plain", profile="coder")],
        rates={"plain": CELLS},
        provenance={"plain": {**TOLD, "engine": engine}},
        changes=REAL,
    )
    payload = json.loads(json.dumps(localmaxxing.build_submission(assemble_report(found))))
    assert payload["engineName"] == name
    assert localmaxxing.missing_fields(payload) == (() if name else ("engineName",))
    if name:
        jsonschema.validate(payload, SCHEMA)


@pytest.mark.parametrize(
    ("facts", "argv", "model", "label"),
    [
        (weights(quantization="nvfp4"), (), "org/a", "NVFP4"),
        (weights(quantization="gptq int4"), (), "org/a", "GPTQ-Int4"),
        (weights(dtype="bfloat16"), ("--quantization", "fp8"), "org/a", "bf16"),
        (weights(format="gguf", quantization="q4_k"), (), "/m/Qwen3.6-27B-Q4_K_M.gguf", "Q4_K_M"),
        (None, ("llama-server", "-m", "/m/x-UD-Q5_K_XL-00001-of-00002.gguf"), None, "UD-Q5_K_XL"),
        (None, ("--quantization=gptq_marlin",), "org/a", "GPTQ"),
        (None, ("--quantization", "modelopt"), "/data/Qwen3-Coder-30B-A3B-Instruct-NVFP4", "NVFP4"),
        (None, (), "org/Qwen3-235B-A22B-GPTQ-Int4", "GPTQ-Int4"),
        (None, (), "org/Qwen3-8B", None),
    ],
)  # fmt: skip
def test_the_quantization_is_read_from_what_knows_it_best(
    facts: WeightFacts | None, argv: tuple[str, ...], model: str | None, label: str | None
) -> None:
    """Headers, the file's name, the flag, the model's name; never guessed."""
    assert quantization_label(facts, argv, model) == label


def test_spark_arena_gets_its_three_files(rehearse: Callable[..., Results]) -> None:
    """Rows by the Arena's depths; the whole prompt is cold here, so its prefill is told at depth 0 alone."""
    found = rehearse(
        arms=[Arm(name="plain", profile="coder")],
        rates={"plain": ARENA},
        provenance={"plain": TOLD},
        changes={**REAL, "suite": "arena"},
    )
    files = spark_arena.build_files(found, assemble_report(found), "recipe_version: '2'")
    assert list(files) == ["recipe.yaml", "benchmark.csv", "metadata.json"]
    rows = list(csv.DictReader(io.StringIO(files["benchmark.csv"])))
    assert [row["test_name"] for row in rows] == [
        "pp2048 (c1)", "tg128 (c1)", "pp2048 (c2)", "tg128 (c2)", "tg128 @ d4096 (c1)", "tg128 @ d4096 (c2)",
    ]  # fmt: skip
    assert float(rows[1]["t_s_mean"]) == pytest.approx(127 / (0.9 * 128 / 60))
    assert len(rows[0]) == 16
    told = json.loads(files["metadata.json"])
    assert told["recipe"]["container"] == "nvcr.io/x@sha256:aa"
    assert told["model"] == {"revision": "abc", "quantization": "NVFP4", "kv_dtype": "fp8"}
    assert told["recipe"].keys() >= {"name", "model", "hf_model", "container", "container_pinned", "runtime", "hash"}


@pytest.mark.parametrize(
    ("changes", "code"), [({"suite": "arena"}, "run_simulated"), ({**REAL, "suite": "seeds"}, "suite_differs")]
)
def test_a_run_that_the_arena_cannot_compare_is_refused(
    changes: dict[str, Any], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]
) -> None:
    """Before anything is written."""
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    recorded(bench_dir(), arms=[Arm(name="plain", profile="coder")], rates={"plain": ARENA}, changes=changes)
    done = CliRunner().invoke(app, ["bench", "export", "last", "-f", "spark-arena", "-o", str(tmp_path / "out")])
    assert isinstance(done.exception, AdmissionError)
    assert done.exception.code == code
    assert not (tmp_path / "out").exists()
    assert CliRunner().invoke(app, ["bench", "export", "last", "-f", "spark-arena"]).exit_code == 2
