"""Estimated memory of a launch, from flags, weights' headers and declared figures."""

from math import ceil
from typing import Any

import pytest

from sparkdash.domain.memory import Basis, Need
from sparkdash.domain.profile import EngineKind, MemoryNeed, ModelRef, Profile, SimSpec
from sparkdash.domain.request import Task
from sparkdash.domain.weights import Attention, KvLayers, Unread, WeightBytes, WeightFacts
from sparkdash.engines.memory_terms import OVERHEAD_BYTES
from sparkdash.engines.registry import adapter_of, estimate_launch
from sparkdash.engines.vllm.engine import HOST_BYTES, LOADER_BYTES
from sparkdash.units import GIB

BOX = 127_600_748 * 1024
WEIGHTS = 17 * GIB

CODER = WeightFacts(
    origin="/m/coder", format="safetensors", architecture="qwen3_moe", bytes=WeightBytes(dense=GIB, experts=16 * GIB),
    kv=(KvLayers(kind=Attention.FULL, layers=48, key_elements=512, value_elements=512),), context=262144,
)  # fmt: skip
"""Qwen3-Coder-30B-A3B's attention: 48 layers, 4 KV heads of 128."""
HYBRID = CODER.model_copy(
    update={
        "bytes": WeightBytes(dense=9 * GIB, draft=GIB),
        "kv": (
            KvLayers(kind=Attention.FULL, layers=16, key_elements=1024, value_elements=1024),
            KvLayers(kind=Attention.LINEAR, layers=48, state_bytes=3268608),
        ),
    }
)


def profile(engine: EngineKind = EngineKind.VLLM, **rest: Any) -> Profile:
    return Profile(name="p", engine=engine, **({"models": {"target": ModelRef(path="/m/coder")}} | rest))


def sizes(need: Need) -> dict[str, int | None]:
    return {term.name: term.bytes for term in need.terms}


def need(one: Profile, facts: WeightFacts | Unread = CODER, box: int | None = BOX) -> dict[str, int | None]:
    return sizes(estimate_launch(one, {"target": facts}, box))


def test_a_cache_sized_in_bytes_is_weights_and_cache_and_overhead() -> None:
    """The published coder profile: its tiny utilization is no size."""
    found = estimate_launch(
        profile(args={"gpu-memory-utilization": 0.05, "kv-cache-memory-bytes": "10G"}), {"target": CODER}, BOX
    )
    assert sizes(found) == {"weights": WEIGHTS, "kv": 10 * GIB, "overhead": OVERHEAD_BYTES}
    assert (found.basis, found.total_bytes, found.peak_bytes) == (Basis.ESTIMATED, 34 * GIB, None)
    assert [term.source for term in found.terms] == [
        "safetensors headers of /m/coder", "--kv-cache-memory-bytes",
        "5.4 to 6.7 GiB on a GB10, rounded up: llamastash#80, #81",
    ]  # fmt: skip


def test_a_share_of_the_box_is_taken_whole_whatever_the_model_needs() -> None:
    """As request_memory computes it; the weights need not even be known."""
    found = estimate_launch(profile(args={"gpu_memory_utilization": 0.85}), {"target": Unread(reason="not here")}, BOX)
    assert sizes(found) == {"utilization": ceil(BOX * 0.85), "overhead": HOST_BYTES}
    assert found.terms[0].source == "--gpu-memory-utilization 0.85 of 121.7 GiB, taken whole"
    assert need(profile(args={"gpu-memory-utilization": 0.85}), box=None)["utilization"] is None


@pytest.mark.parametrize(("given", "expected"), [("0.19.1", 0.90), ("0.20.0", 0.92), (None, None), ("nightly", None)])
def test_vllm_without_a_share_takes_its_versions_default(given: str | None, expected: float | None) -> None:
    """0.90 before 0.20, 0.92 since; unknown while the version is."""
    size = need(profile(engine_version=given))["utilization"]
    assert size == (None if expected is None else ceil(BOX * expected))


def test_blocks_are_tokens_times_what_a_token_keeps() -> None:
    """100 blocks of 16 (or as given), at the cache's dtype; a hybrid's block size is the engine's own."""
    per_token = 48 * 1024 * 2
    assert need(profile(args={"num-gpu-blocks-override": 100}))["kv"] == 1600 * per_token
    args = {"num-gpu-blocks-override": 100, "block-size": 32, "kv-cache-dtype": "fp8_e4m3"}
    assert need(profile(args=args))["kv"] == 3200 * per_token // 2
    assert need(profile(args={"num-gpu-blocks-override": 100}), HYBRID)["kv"] is None


def test_the_checkpoint_may_ask_for_an_fp8_cache() -> None:
    """`auto` follows it; a dtype of unknown size leaves the term unknown."""
    asks = CODER.model_copy(update={"kv_dtype": "fp8"})
    args = {"num-gpu-blocks-override": 100}
    assert need(profile(args=args), asks)["kv"] == 1600 * 48 * 1024
    assert need(profile(args=args | {"kv-cache-dtype": "bfloat16"}), asks)["kv"] == 1600 * 48 * 1024 * 2
    assert need(profile(args=args | {"kv-cache-dtype": "turboquant_k8v4"}), asks)["kv"] is None


def test_a_drafter_counts_beside_a_sized_cache() -> None:
    """Named by its role or by its path; one that is not among the models is unknown, and so is the sum."""
    drafter = CODER.model_copy(update={"bytes": WeightBytes(dense=GIB), "origin": "/m/draft"})
    models = {"target": ModelRef(path="/m/coder"), "drafter": ModelRef(path="/m/draft")}
    for name in ("{drafter}", "/m/draft"):
        args = {"kv-cache-memory-bytes": GIB, "speculative-config": {"method": "eagle3", "model": name}}
        found = estimate_launch(profile(models=models, args=args), {"target": CODER, "drafter": drafter}, BOX)
        assert sizes(found)["drafter"] == GIB
    args = {"kv-cache-memory-bytes": GIB, "speculative-config": '{"method": "eagle3", "model": "org/other"}'}
    found = estimate_launch(profile(models=models, args=args), {"target": CODER, "drafter": drafter}, BOX)
    assert (sizes(found)["drafter"], found.basis, found.total_bytes) == (None, Basis.UNKNOWN, None)
    assert "org/other is not among the profile's models" in [term.source for term in found.terms]
    declared = profile(models=models, args=args, memory=MemoryNeed(weights_gib=9))
    assert "drafter" not in sizes(estimate_launch(declared, {"target": CODER}, BOX))


V, S = EngineKind.VLLM, EngineKind.SGLANG
SHARE = {"gpu-memory-utilization": 0.5, "mem-fraction-static": 0.5}


def transferring(config: object) -> dict[str, Any]:
    return {"args": {"kv-transfer-config": config}}


@pytest.mark.parametrize(("engine", "keys", "extra"), [
    (V, {"env": {"VLLM_MM_INPUT_CACHE_GIB": "8", "LMCACHE_MAX_LOCAL_CPU_SIZE": "2.5"}}, 18.5 * GIB),
    (V, {"env": {"VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": "2147483648", "VLLM_CACHE_ROOT": "/c"}}, 2 * GIB),
    (S, {"env": {"SGLANG_SYMM_MEM_PREALLOC_GB_SIZE": "4", "MOONCAKE_GLOBAL_SEGMENT_SIZE": "4gb"}}, 8 * GIB),
    (S, {"env": {"SGLANG_SYMM_MEM_PREALLOC_GB_SIZE": "-1", "SGLANG_DSV4_FP4_DEQUANT": "false"}}, 0),
    (S, {"env": {"SGLANG_DSV4_FP4_DEQUANT": "1"}}, None),
    (S, {"env": {"SGLANG_EMBEDDING_POOL_SIZE_MB": "much"}}, None),
    (V, {"args": {"kv-offloading-size": 8, "cpu-offload-gb": 2.5, "mm-processor-cache-gb": 1}}, 12.5 * GIB),
    (V, transferring({"kv_connector_extra_config": {"cpu_bytes_to_use": 4 * GIB}}), 4 * GIB),
    (V, transferring('{"kv_connector_extra_config": {"cpu_bytes_to_use": 1e9}}'), 10**9),
    (V, {"args": {"kv-offloading-size": 0, "kv-transfer-config": {"kv_role": "kv_both"}}}, 0),
    (S, {"args": {"enable-hierarchical-cache": True, "hicache-size": 20}}, 20 * 10**9),
    (S, {"args": {"enable-hierarchical-cache": True, "hicache-ratio": 2}}, None),
])  # fmt: skip
def test_what_takes_memory_beside_the_share_is_counted_or_the_need_is_unknown(
    engine: EngineKind, keys: dict[str, Any], extra: float | None
) -> None:
    """A Spark has one memory: what an engine keeps in the host's, by a variable or a flag, is gone for everybody."""
    env, args = keys.get("env", {}), SHARE | keys.get("args", {})
    plain = estimate_launch(profile(engine, args=SHARE), {}, BOX)
    found = estimate_launch(profile(engine, args=args, env=env), {}, BOX)
    assert plain.total_bytes is not None
    assert found.total_bytes == (None if extra is None else plain.total_bytes + extra)
    if env:
        assert any(name in found.terms[-1].source for name in env) is (extra != 0)
        declared = profile(engine, args=args, env=env, memory=MemoryNeed(overhead_gib=9, source="mine"))
        assert need(declared)["overhead"] == 9 * GIB


def test_a_prompt_cache_of_a_given_size_is_counted() -> None:
    """By the flag, its short form or its variable; without a limit the need is not known."""
    plain = need(profile(EngineKind.LLAMACPP, args={"ctx-size": 4096}))["overhead"]
    for given in (
        {"args": {"ctx-size": 4096, "cache-ram": 2048}},
        {"args": {"ctx-size": 4096, "cram": 2048}},
        {"args": {"ctx-size": 4096}, "env": {"LLAMA_ARG_CACHE_RAM": "2048"}},
    ):
        assert need(profile(EngineKind.LLAMACPP, **given))["overhead"] == plain + 2 * GIB
    assert need(profile(EngineKind.LLAMACPP, args={"cache-ram": -1}))["overhead"] is None


def test_variables_of_the_daemons_environment_make_the_need_unknown() -> None:
    handed_on = profile(args={"gpu-memory-utilization": 0.5}, env_from=("VLLM_MM_INPUT_CACHE_GIB",))
    assert need(handed_on)["overhead"] is None


def test_mtp_layers_count_only_where_they_draft() -> None:
    """vLLM leaves them on the disk otherwise."""
    args: dict[str, Any] = {"kv-cache-memory-bytes": GIB}
    assert need(profile(args=args), HYBRID)["weights"] == 9 * GIB
    args["speculative-config"] = {"method": "mtp", "num_speculative_tokens": 2}
    assert need(profile(args=args), HYBRID)["weights"] == 10 * GIB


def test_weights_are_spread_over_boxes_only_by_a_flag_that_says_so() -> None:
    args: dict[str, Any] = {"kv-cache-memory-bytes": GIB}
    assert need(profile(nodes=2, args=args))["weights"] is None
    assert need(profile(nodes=2, args=args | {"tensor-parallel-size": 2}))["weights"] == WEIGHTS // 2
    assert need(profile(nodes=2, args=args | {"pipeline_parallel_size": 2}))["weights"] == WEIGHTS // 2


def test_the_instanttensor_loader_costs_beside_a_sized_cache() -> None:
    """Within a share of the box it costs KV cache instead."""
    args: dict[str, Any] = {"kv-cache-memory-bytes": GIB, "load-format": "instanttensor"}
    assert need(profile(args=args))["loader"] == LOADER_BYTES
    assert "loader" not in need(profile(args={"gpu-memory-utilization": 0.8, "load-format": "instanttensor"}))


def test_a_cpu_engine_has_its_cache_and_no_measured_overhead() -> None:
    one = profile(gpu=False, env={"VLLM_CPU_KVCACHE_SPACE": "4"})
    assert need(one) == {"weights": WEIGHTS, "kv": 4 * GIB, "overhead": None}
    assert need(profile(gpu=False))["kv"] is None


def test_sglang_takes_its_static_share_or_what_its_tokens_need() -> None:
    kind = EngineKind.SGLANG
    assert need(profile(kind, args={"mem-fraction-static": 0.8})) == {
        "utilization": ceil(BOX * 0.8), "overhead": OVERHEAD_BYTES,
    }  # fmt: skip
    assert need(profile(kind))["utilization"] is None
    assert need(profile(kind, args={"max-total-tokens": 1000}))["kv"] == 1000 * 48 * 1024 * 2
    args = {"max-total-tokens": 1000, "speculative-algorithm": "NEXTN"}
    assert need(profile(kind, args=args), HYBRID)["weights"] == 10 * GIB


def test_llamacpp_holds_its_context_in_all_slots_together() -> None:
    """The published log of Qwen3.6-27B: 16384 MiB for 262144 cells of 16 layers, 598.5 MiB of states for 4 slots."""
    found = need(profile(EngineKind.LLAMACPP, args={"ctx-size": 262144, "parallel": 4}), HYBRID)
    assert found["kv"] == int((16384 + 598.5) * 2**20)
    halved = need(profile(EngineKind.LLAMACPP, args={"c": 262144, "cache-type-k": "q8_0", "ctv": "q8_0"}), CODER)
    assert halved["kv"] == 262144 * 48 * 1024 * 8.5 / 8
    assert need(profile(EngineKind.LLAMACPP))["kv"] == 262144 * 48 * 1024 * 2
    assert need(profile(EngineKind.LLAMACPP, args={"cache-type-k": "odd"}))["kv"] is None


def test_llamacpp_reads_its_flags_from_variables_too() -> None:
    """The need of a context of 400k once was that of the model's own 41k, which can freeze the box."""
    kind = EngineKind.LLAMACPP
    variables = {"LLAMA_ARG_CTX_SIZE": "262144", "LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_CACHE_TYPE_K": "q8_0"}
    args = {"ctx-size": 262144, "parallel": 4, "cache-type-k": "q8_0"}
    one = profile(kind, env=variables)
    assert need(one, HYBRID) == need(profile(kind, args=args), HYBRID)
    assert adapter_of(one).context(one) == 65536
    assert (
        need(profile(kind, args={"c": 1024}, env=variables))["kv"]
        == need(profile(kind, args={"ctx-size": 1024, "ctk": "q8_0", "np": 4}))["kv"]
    )
    assert need(profile(kind, env_from=("LLAMA_ARG_CTX_SIZE",)))["kv"] is None
    embedding = profile(kind, env={"LLAMA_ARG_EMBEDDINGS": "1"})
    assert adapter_of(embedding).tasks(embedding, None) == {Task.EMBED}


def test_trtllm_takes_most_of_what_the_weights_leave() -> None:
    """A share of the rest, unless a file that is not read decides."""
    kind = EngineKind.TRTLLM
    assert need(profile(kind))["kv"] == ceil((BOX - WEIGHTS) * 0.9)
    given = {"kv_cache_free_gpu_memory_fraction": 0.5}
    assert need(profile(kind, args=given))["kv"] == ceil((BOX - WEIGHTS) * 0.5)
    assert need(profile(kind, args={"extra-llm-api-options": "/x.yaml"}))["kv"] is None


@pytest.mark.parametrize(
    ("variable", "gib", "term"),
    [("TENSORFOLD_KV_POOL_GIB", "40", "kv"), ("TENSORFOLD_CUDA_MEMORY_LIMIT_GB", "94", "utilization")],
)
def test_a_pinned_pool_and_a_limit_of_tensorfold_count_as_memory_that_is_taken(
    variable: str, gib: str, term: str
) -> None:
    """Without either the cache is unknown, and the sum with it."""
    one = profile(EngineKind.TENSORFOLD, env={variable: gib})
    terms = {each.name: each for each in estimate_launch(one, {}, BOX).terms}
    assert terms[term].bytes == int(gib) * GIB
    assert variable in terms[term].source
    assert estimate_launch(one.replace(env={}), {"target": CODER}, BOX).total_bytes is None


def test_declared_figures_go_before_computed_ones_term_by_term() -> None:
    """Each names its source; a lone figure is a part of a share and no summand beside it."""
    args = {"kv-cache-memory-bytes": "10G"}
    one = profile(args=args, memory=MemoryNeed(weights_gib=20, source="a paper"))
    found = estimate_launch(one, {"target": CODER}, BOX)
    assert sizes(found) == {"weights": 20 * GIB, "kv": 10 * GIB, "overhead": OVERHEAD_BYTES}
    assert found.terms[0].source == "memory.weights_gib in the profile: a paper"
    assert found.basis is Basis.ESTIMATED
    share = {"gpu-memory-utilization": 0.8}
    half = profile(args=share, memory=MemoryNeed(weights_gib=20, overhead_gib=2))
    assert need(half) == {"utilization": ceil(BOX * 0.8), "overhead": 2 * GIB}
    whole = profile(args=share, memory=MemoryNeed(weights_gib=20, kv_gib=10, overhead_gib=2, source="a log"))
    found = estimate_launch(whole, {}, BOX)
    assert (found.basis, found.total_bytes) == (Basis.DECLARED, 32 * GIB)


def test_what_is_missing_is_told() -> None:
    one = profile(args={"kv-cache-memory-bytes": "10G"})
    found = estimate_launch(one, {"target": Unread(reason="/m/coder is not on this box")}, BOX)
    assert (found.basis, found.total_bytes) == (Basis.UNKNOWN, None)
    assert found.terms[0].source == "/m/coder is not on this box"
    assert estimate_launch(one, {}, BOX).terms[0].bytes is None


def test_what_is_elsewhere_or_simulated_says_so() -> None:
    """A server that sparkdash does not start takes nothing more; a simulation what it says."""
    there = estimate_launch(Profile(name="p", engine=EngineKind.OPENAI, url="http://127.0.0.1:9"), {}, BOX)
    assert (there.total_bytes, "starts nothing" in there.terms[0].source) == (0, True)
    pretend = estimate_launch(Profile(name="p", engine=EngineKind.SIM, sim=SimSpec(memory_gib=3)), {}, BOX)
    assert (pretend.total_bytes, pretend.terms[0].source) == (3 * GIB, "sim.memory_gib: simulated")
    declared = Profile(
        name="p", engine=EngineKind.SIM, memory=MemoryNeed(weights_gib=1, kv_gib=2, overhead_gib=0.5, source="x")
    )
    assert estimate_launch(declared, {}, BOX).total_bytes == 3.5 * GIB
