"""A start, taken apart: the stages' seconds against the times that the engines' own logs have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.domain.swap import Start, Step
from sparkdash.engines.registry import adapter
from sparkdash.engines.start_stages import StartStages, largest_costs

GB10 = """
06:54:48 ==========
06:54:54 (APIServer pid=1) INFO 03-18 06:54:54 [api_server.py:1354] vLLM API server version 0.13.0+faa43dbf.nv26.01
06:55:04 (EngineCore_DP0 pid=165) INFO 03-18 06:55:04 [gpu_model_runner.py:3562] Starting to load model x...
06:55:16 Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
06:55:49 Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:32<00:00, 16.11s/it]
06:55:49 (EngineCore_DP0 pid=165) INFO 03-18 06:55:49 [default_loader.py:308] Loading weights took 32.77 seconds
06:55:50 (EngineCore_DP0 pid=165) INFO [gpu_model_runner.py:3659] Model loading took 4.9 GiB memory and 44.99 seconds
06:55:51 (EngineCore_DP0 pid=165) INFO 03-18 06:55:51 [backends.py:703] Dynamo bytecode transform time: 1.81 s
06:57:23 (EngineCore_DP0 pid=165) INFO [backends.py:278] Compiling a graph for compile range (1, 2048) takes 90.39 s
06:57:23 (EngineCore_DP0 pid=165) INFO 03-18 06:57:23 [monitor.py:34] torch.compile takes 92.20 s in total
06:57:25 (EngineCore_DP0 pid=165) INFO 03-18 06:57:25 [gpu_worker.py:375] Available KV cache memory: 11.15 GiB
06:57:25 (EngineCore_DP0 pid=165) INFO 03-18 06:57:25 [kv_cache_utils.py:1291] GPU KV cache size: 208,320 tokens
06:57:26 (EngineCore_DP0 pid=165) INFO - autotuner.py:256 - flashinfer.jit: [Autotuner]: Autotuning process starts ...
06:57:33 (EngineCore_DP0 pid=165) INFO - autotuner.py:262 - flashinfer.jit: [Autotuner]: Autotuning process ends
06:57:38 Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|#| 51/51 [00:04<00:00, 10.66it/s]
06:57:57 (EngineCore_DP0 pid=165) INFO [gpu_model_runner.py:4587] Graph capturing finished in 24 secs, took 1.00 GiB
06:57:57 (EngineCore_DP0 pid=165) INFO [core.py:259] init engine (profile, create kv cache, warmup model) took 127 s
06:57:59 (APIServer pid=1) INFO [api_server.py:1428] Starting vLLM API server 0 on http://0.0.0.0:8000
06:58:00 (APIServer pid=1) INFO:     Application startup complete.
"""
"""Lines of a start that an owner of a GB10 published, with the times that they tell."""
SGLANG = """
00:00:09 [2026-04-27 02:36:04] Load weight begin. avail mem=177.57 GB
00:00:11 [2026-04-27 02:36:06] Load weight end. elapsed=1.97 s, type=Qwen3ForCausalLM, mem usage=15.28 GB.
00:00:12 [2026-04-27 02:36:07] KV Cache is allocated. #tokens: 992896, K size: 68.18 GB, V size: 68.18 GB
00:00:40 [2026-04-27 02:36:35] Capture target decode CUDA graph end. elapsed=22.18 s, mem usage=1.91 GB
00:00:42 [2026-04-27 02:36:37] The server is fired up and ready to roll!
"""


def seconds(time: str) -> float:
    hours, minutes, rest = time.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(rest)


def stages(kind: EngineKind, log: str, began: str, alive: str, first: str) -> dict[str, float]:
    engine = adapter(kind)
    found = StartStages(seconds(began), engine.follows)
    for line in log.strip().splitlines():
        at, _, text = line.partition(" ")
        found.heard(engine.read_log(text), seconds(at), engine.age(text))
    found.alive(seconds(alive))
    return {step.name: round(step.s, 2) for step in found.seconds(seconds(first))}


def test_a_vllm_start_on_a_gb10_is_taken_apart_by_its_own_times() -> None:
    """The log's own seconds win over the arrival of its lines; silent time before a stage's first line is that stage's."""
    found = stages(EngineKind.VLLM, GB10, "06:54:47", "06:58:00", "06:58:02")
    assert found == {
        "process": 1,
        "imports": 16,
        "weights": 46,
        "compile": 93,
        "kv": 2,
        "kernels": 8,
        "graphs": 24,
        "server": 3,
        "first token": 2,
    }
    assert sum(found.values()) == seconds("06:58:02") - seconds("06:54:47")


def test_an_sglang_start_is_taken_apart() -> None:
    """Graphs take what their line tells; before that nothing is named, so that it counts to them, too."""
    found = stages(EngineKind.SGLANG, SGLANG, "00:00:00", "00:00:43", "00:00:44")
    assert found["weights"] == 2
    assert found["kv"] == 1
    assert found["graphs"] == 28
    assert sum(found.values()) == 44


LLAMA = """
00:00:09 0.00.000.744 I srv  llama_server: initializing ...
00:00:09 0.00.010.428 I srv    load_model: loading model 'models/tiny-qwen3.gguf'
00:00:09 0.07.250.213 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'false'
00:00:09 0.07.256.523 I srv  llama_server: listening on http://127.0.0.1:8201
"""


def test_lines_that_are_read_late_count_from_the_time_that_they_bear() -> None:
    found = stages(EngineKind.LLAMACPP, LLAMA, "00:00:01", "00:00:09", "00:00:10")
    assert found == {"process": 0, "imports": 0.01, "weights": 7.24, "server": 0.75, "first token": 1}


def test_a_stage_never_begins_before_the_container() -> None:
    found = StartStages(100.0, {})
    found.heard(LoadProgress(stage="weights", fraction=1.0, took_s=500.0), 110.0)
    found.alive(111.0)
    assert {step.name: step.s for step in found.seconds(112.0)} == {"weights": 10.0, "server": 1.0, "first token": 1.0}


@pytest.mark.parametrize(
    ("log", "compiled"),
    [("vllm-0.32.0-base.log", [False]), ("vllm-0.23.0-h100-heard.log", [False, False]), ("vllm-0.27.1-base.log", [])],
)
def test_a_log_tells_whether_graphs_were_compiled(
    log: str, compiled: Sequence[bool], recorded: Callable[[str], list[str]]
) -> None:
    pattern = adapter(EngineKind.VLLM).compiled_line
    assert pattern is not None
    assert [bool(hit["cached"]) for hit in map(pattern.search, recorded(log)) if hit] == compiled


@pytest.mark.parametrize(("first", "says"), [(True, "Keep its cache folder"), (False, "VLLM_USE_AOT_COMPILE")])
def test_graphs_that_are_compiled_anew_with_a_kept_cache_have_another_remedy(first: bool, says: str) -> None:
    """vLLM 0.32 on a CPU saved compiled functions that it could not load, and compiled them at each start."""
    start = Start(stages=(Step(name="compile", s=82.0),), compiled=True, first_on_image=first)
    profile = Profile(name="tiny", engine=EngineKind.VLLM, image="x", models={"target": ModelRef(path="/m")})
    (cost,) = largest_costs(adapter(EngineKind.VLLM).levers(), profile, [start])
    assert says in (cost.change or "")
