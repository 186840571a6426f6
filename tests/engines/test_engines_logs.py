"""Start-up and failure logs of real engines, and the phrases of those that could not be run."""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pytest

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.domain.swap import Start, Step
from sparkdash.engines.logs import detail
from sparkdash.engines.registry import adapter
from sparkdash.engines.start_stages import StartStages, largest_costs

Recorded = Callable[[str], list[str]]


def _progress(kind: str, lines: list[str]) -> list[LoadProgress]:
    seen = [adapter(EngineKind(kind)).read_log(line) for line in lines]
    return [progress for progress in seen if progress]


def _stages(kind: str, lines: list[str]) -> list[str]:
    return [stage for stage, _ in groupby(progress.stage for progress in _progress(kind, lines))]


@pytest.mark.parametrize(("log", "stages"), [
    ("vllm-0.32.0-base.log", "weights compile kv warmup http ready"),
    ("vllm-0.32.0-base-warmcache.log", "weights compile kv warmup http ready"),
    ("vllm-0.27.1-base.log", "weights kv warmup http ready"),
    ("vllm-0.32.0-eagle3.log", "weights kv warmup http ready"), ("vllm-0.32.0-nnodes-rank1.log", "nodes weights"),
    ("vllm-0.23.0-h100-heard.log", "weights compile kv graphs warmup http ready"),
    ("llama.cpp-0c1e57098-base.log", "weights kv http ready"),
    ("llama.cpp-0c1e57098-draft.log", "weights kv http ready"),
])  # fmt: skip
def test_recorded_starts_go_through_their_stages_in_order(log: str, stages: str, recorded: Recorded) -> None:
    """Eager runs skip compile; a second node of a pair tells of joining and weights only; `ready` comes last. The H100's are the lines that a daemon
    took for stages while it started a vLLM there, of a whole log that is not kept."""
    kind = "vllm" if log.startswith("vllm") else "llamacpp"
    assert _stages(kind, recorded(log)) == stages.split()


def test_weights_count_up_and_begin_anew_for_the_drafter(recorded: Recorded) -> None:
    weights = [p for p in _progress("vllm", recorded("vllm-0.32.0-eagle3.log")) if p.stage == "weights"]
    assert [p.fraction for p in weights] == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    assert weights[4].detail == "Loading drafter model..."


@pytest.mark.parametrize(("kind", "line", "stage", "fraction", "detail"), [
    ("vllm", "(EngineCore pid=7) INFO 05-02 10:00:00 [gpu_worker.py:298] Available KV cache memory: 38.10 GiB", "kv",
     None, "Available KV cache memory: 38.10 GiB"),
    ("vllm",
     "(APIServer pid=1) INFO 05-02 10:00:00 [api_server.py:1] Starting vLLM API server 0 on http://127.0.0.1:18000",
     "http", None, "Starting vLLM API server 0 on http://127.0.0.1:18000"),
    ("sglang", "[2026-11-21 02:00:00 TP0] Load weight begin. avail mem=110.20 GB", "weights", 0.0,
     "Load weight begin. avail mem=110.20 GB"),
    ("sglang",
     "[2026-11-21 02:00:40 TP0] Load weight end. elapsed=40.1 s, type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=94.61 GB",
     "weights", 1.0, None),
    ("sglang", "[2026-11-21 02:00:41] KV Cache is allocated. #tokens: 262144, K size: 4 GB", "kv", 1.0, None),
    ("sglang", "[2026-11-21 02:00:42] Capture cuda graph begin. This can take up to several minutes.", "graphs", 0.0,
     None),
    ("sglang", "Capturing batches (bs=8 avail_mem=40.1 GB):  25%|##        | 1/4 [00:01<00:03]", "graphs", 0.25, None),
    ("sglang", "INFO:     Application startup complete.", "warmup", None, "Application startup complete."),
    ("sglang", "[2026-11-21 02:01:00] The server is fired up and ready to roll!", "ready", 1.0,
     "The server is fired up and ready to roll!"),
    ("trtllm", "Loading weights:  50%|#####     | 120/240 [00:30<00:30]", "weights", 0.5, None),
    ("trtllm", "[11/21/2026-02:00:00] [TRT-LLM] [I] Allocated 40.00 GiB for max tokens in paged KV cache (524288).",
     "kv", None, "Allocated 40.00 GiB for max tokens in paged KV cache (524288)."),
    ("trtllm", "INFO:     Application startup complete.", "ready", 1.0, "Application startup complete."),
    ("tensorfold", "[tensorfold] CUDA rank 0 startup estimate 83.07 GiB within 111.71 GiB; native 262144, allocated "
     "prompt/reply window 262144, cache slots 262151", "weights", None, None),
    ("tensorfold", "[tensorfold] serving Qwen3.8-27B at http://127.0.0.1:18000/v1 on CUDA (sampling: temperature 1.0; "
     "drafts: on; prompts: bf16 activations; context: 262144; loaded in 58.1s)", "ready", 1.0, None),
    ("llamacpp", "main: server is listening on http://127.0.0.1:8080 - starting the main loop", "ready", 1.0, None),
    ("sim", "INFO:     Application startup complete.", "ready", 1.0, "Application startup complete."),
])  # fmt: skip
def test_known_phrases_tell_stage_and_share(
    kind: str, line: str, stage: str, fraction: float | None, detail: str | None
) -> None:
    """Built from the engines' own format strings where no run was possible; the detail drops time stamp and origin."""
    progress = adapter(EngineKind(kind)).read_log(line)
    assert progress is not None
    assert (progress.stage, progress.fraction) == (stage, fraction)
    assert detail is None or progress.detail == detail


@pytest.mark.parametrize("kind", list(EngineKind))
def test_other_lines_say_nothing(kind: EngineKind) -> None:
    assert adapter(kind).read_log('INFO:     127.0.0.1:47924 - "GET /health HTTP/1.1" 200 OK') is None


@pytest.mark.parametrize(
    ("log", "code", "found"),
    [
        ("vllm-0.32.0-unknown-flag.log", "unknown_flag", "unrecognized arguments: --speculative-model"),
        ("vllm-0.32.0-flag-value.log", "unknown_flag", "argument --max-model-len: invalid"),
        ("vllm-0.32.0-no-model.log", "model_not_found", "'/nowhere/model'"),
        ("vllm-0.32.0-no-hub.log", "model_not_found", "hub cannot be reached"),
        ("vllm-0.32.0-port-taken.log", "port_in_use", "Address already in use"),
        ("vllm-0.32.0-kv-too-small.log", "out_of_memory", "max seq len (4096)"),
        ("vllm-0.32.0-eagle3-crash.log", "engine_crash", "RuntimeError: shape '[-1, 384]' is invalid"),
        ("vllm-0.32.0-synth-crash.log", "engine_crash", "AssertionError: Synthetic acceptance not supported"),
        ("vllm-0.32.0-crash.log", "engine_crash", "EngineCore encountered a fatal error"),
    ],
)
def test_recorded_failures_of_a_real_vllm_are_named(log: str, code: str, found: str, recorded: Recorded) -> None:
    lines = recorded(log)
    failure = adapter(EngineKind.VLLM).classify(lines, 1)
    assert (failure.code, failure.exit_code) == (code, 1)
    assert found in failure.message
    assert failure.hint
    assert failure.log_tail == tuple(lines[-20:])


@pytest.mark.parametrize(("kind", "line", "code"), [
    ("vllm",
     "ValueError: Free memory on device cuda:0 (80/121.69 GiB) on startup is less than desired GPU memory utilization",
     "out_of_memory"),
    ("vllm", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out_of_memory"),
    ("vllm", "OSError: [Errno 28] No space left on device: '/root/.cache/vllm/torch_compile_cache'", "disk_full"),
    ("sglang", "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x: No space left on device",
     "disk_full"),
    ("vllm", "OSError: [Errno 122] Disk quota exceeded", "disk_full"),
    ("vllm", "RuntimeError: Failed to infer device type", "no_gpu_device"),
    ("vllm", "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "no_gpu_device"),
    ("vllm", "Failed to initialize NVML: Driver/library version mismatch", "cdi_stale"),
    ("vllm",
     "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
     "cdi_stale"),
    ("vllm", "Failed to initialize NVML: Unknown Error", "engine_crash"),
    ("vllm", "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev rocep1s0f0:1", "rdma_failed"),
    ("vllm", "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory", "rdma_failed"),
    ("sglang", "RuntimeError: NCCL error: unhandled system error ... in ncclTransportTreeConnect", "rdma_failed"),
    ("vllm", "exec /usr/local/bin/vllm: exec format error", "wrong_arch"),
    ("vllm", "OSError: You are trying to access a gated repo.", "token_refused"),
    ("vllm", "RepositoryNotFoundError: 401 Client Error. Repository Not Found for url", "model_not_found"),
    ("vllm", "HfHubHTTPError: 401 Client Error: Unauthorized for url", "token_refused"),
    ("vllm", "HfHubHTTPError: 403 Client Error: Forbidden for url", "token_refused"),
    ("sglang", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "out_of_memory"),
    ("sglang", "launch_server.py: error: unrecognized arguments: --max-model-len", "unknown_flag"),
    ("llamacpp", "gguf_init_from_file: failed to open GGUF file '/models/x.gguf' (No such file or directory)",
     "model_not_found"),
    ("llamacpp", "error: invalid argument: --max-model-len", "unknown_flag"),
    ("llamacpp", "main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "port_in_use"),
    ("llamacpp",
     "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory",
     "out_of_memory"),
    ("trtllm", "Error: No such option: --max-model-len", "unknown_flag"),
    ("sim", 'Error: short-name "localhost/none" did not resolve to an alias', "image_missing"),
])  # fmt: skip
def test_known_last_words_are_named(kind: str, line: str, code: str) -> None:
    failure = adapter(EngineKind(kind)).classify(["starting", line, "bye"], 1)
    assert failure.code == code
    assert failure.hint


@pytest.mark.parametrize(("exit_code", "code", "words"), [
    (137, "out_of_memory", "killed"), (-9, "out_of_memory", "killed"), (127, "engine_crash", "not found"),
    (3, "engine_crash", "code 3"), (None, "engine_crash", "names no reason"),
])  # fmt: skip
def test_without_words_the_exit_code_speaks(exit_code: int | None, code: str, words: str) -> None:
    """SIGKILL without a word is nearly always the kernel, short of memory."""
    failure = adapter(EngineKind.VLLM).classify([], exit_code)
    assert failure.code == code
    assert words in failure.message


def test_a_program_without_its_library_is_not_called_missing() -> None:
    """The loader ends with the code of a missing program; the line is what a real container said."""
    line = "ollama: error while loading shared libraries: libsqlite3.so.0: cannot open shared object file: No such file"
    failure = adapter(EngineKind.GENERIC).classify([line], 127)
    assert failure.code == "engine_crash"
    assert failure.message.startswith("A shared library that its program needs is missing")
    assert "libsqlite3.so.0" in failure.message


def test_no_secret_survives_in_a_failure() -> None:
    """Tokens and keys are masked in the message and in the kept lines."""
    lines = ["args: {'api_key': 'letmein'}", "ValueError: bad token hf_abcdefghijklmnopqrstuvwxyz012345"]
    failure = adapter(EngineKind.VLLM).classify(lines, 1)
    text = failure.model_dump_json()
    assert "letmein" not in text
    assert "hf_abc" not in text
    assert "bad token ***" in failure.message


def test_a_detail_of_a_start_has_no_secret_in_it() -> None:
    """Screens and the history repeat it."""
    assert detail("Error: bad --password hunter2secret") == "Error: bad --password ***"


VLLM = "(EngineCore pid=1576) INFO 11-21 02:37:08 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
VLLM += "model='/m', speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, kv_cache_dtype={}, seed=0"
FP8 = (
    "INFO 04-19 10:02:00 [cache.py:247] Using fp8_e4m3 data type to store kv cache. It reduces the GPU memory footprint"
)
LLAMA = "llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  4/1 seqs), K (q8_0):  512.00 MiB, V ({}):  512.00 MiB"


@pytest.mark.parametrize(
    ("kind", "lines", "found"),
    [
        ("vllm", [VLLM.format("auto")], "bfloat16"),
        ("vllm", [VLLM.format("fp8_inc")], "fp8_inc"),
        ("vllm", [FP8, VLLM.format("fp8_e4m3")], "fp8_e4m3"),
        ("sglang", ["[2026-03-04 15:13:14 TP0] Using KV cache dtype: torch.float8_e4m3fn"], "float8_e4m3fn"),
        ("sglang", ["[01:39:47] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1131687, K size: 60.44 GB"], "bfloat16"),
        ("llamacpp", ["0.01.2.3 I srv x: y", LLAMA.format("q8_0"), LLAMA.format("f16")], "q8_0"),
        ("llamacpp", [LLAMA.format("f16")], "q8_0/f16"),
        ("trtllm", ["Allocated 3.1 GiB for max tokens in paged KV cache (1)"], None),
        ("vllm", ["Using LBHNC KV cache layout."], None),
    ],
)  # fmt: skip
def test_the_cache_s_type_as_it_was_resolved(kind: str, lines: list[str], found: str | None) -> None:
    """Never what was asked for: `auto` is what the engine made of it."""
    assert adapter(EngineKind(kind)).kv_dtype(lines) == found


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=1) ERROR 11-21 02:50:36 [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly (exit code: -9)",
        "(APIServer pid=2) WARNING 11-23 00:11:29 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly",
    ],
)
def test_a_process_that_was_killed_is_the_reason_and_not_what_the_others_say_of_it(line: str) -> None:
    """The log of a vLLM whose worker or core was killed tells of it once, in the middle of its echoes."""
    echoes = [
        "(EngineCore pid=1) ERROR 11-21 02:50:36 [core.py:1] EngineCore encountered a fatal error.",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "RuntimeError: Caught handled exception, but response already started.",
    ]
    failure = adapter(EngineKind.VLLM).classify([*echoes, line, *echoes], 1)
    assert failure.code == "engine_crash"
    assert failure.message.startswith("One of its processes ended without a word: ")
    assert "unexpectedly" in failure.message


def test_the_words_of_a_dead_vllm_are_known() -> None:
    """As a real one said them in a stream; engines that only break off have none."""
    said = (Path(__file__).parents[1] / "data" / "sse" / "vllm-0.32.0-ray-nodedeath-midstream.txt").read_bytes()
    kinds = {kind for kind in EngineKind if any(word in said for word in adapter(kind).death_words)}
    assert kinds == {EngineKind.VLLM, EngineKind.SIM}


CORE, API = "(EngineCore pid=231) ERROR 11-23 13:22:24 [core.py:1170]", "(APIServer pid=1)"
HEAD_OF_LOST_RANK = [
    f"{CORE} ValueError: what rank 0 says when a rank has gone",
    f"{API} RuntimeError: Engine core initialization failed. See root cause above.",
]
BEFORE = [*HEAD_OF_LOST_RANK, "[spark3] INFO of a third box"]
LOADING = "[spark2] INFO loading"
WORKER = "[spark2] (Worker_TP1 pid=11) ERROR 11-30 03:33:26 [multiproc_executor.py:1063]"
WORKER_DIED = "[spark2] (MainProcess pid=1) ERROR 11-23 12:39:14 [x.py:3] Worker proc VllmWorker-1 died unexpectedly"


def ended(rank: int, box: str, code: int = 1) -> str:
    return f"sparkdash: rank {rank} on {box} ended the engine: its container ended with exit code {code}."


# What all wrote, the exit code, what the failure says, and which lines it keeps (None: all).
LOST: dict[str, tuple[list[str], int | None, str, list[str] | None]] = {
    "a killed process on another node": (
        [f"{WORKER_DIED} (exit code: None)", "INFO:     Application shutdown complete."], None,
        "One of its processes ended without a word: [spark2] Worker proc VllmWorker-1 died unexpectedly", None),
    "a peer that is lost before anybody tells of its end": (  # the core of vLLM says only that something fatal came up
        [f"{CORE} EngineCore encountered a fatal error.",
         f"{CORE} RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.77.0.2]:5819. "
         "This is typically caused by a remote worker crashing.",
         f"{API} INFO 11-23 13:22:26 [core_client.py:777] [shutdown] MPClient: complete"],
        0, "It lost the connection to its part on 10.77.0.2", None),
    **{said: ([*BEFORE, LOADING, f"[spark2] {said}", ended(1, "spark2")], 1, message,
              [LOADING, f"[spark2] {said}", ended(1, "spark2")]) for said, message in (
        ("RuntimeError: the expert is not here", "Rank 1 on spark2 died: RuntimeError: the expert is not here"),
        ("OSError: [Errno 28] No space left on device", "Rank 1 on spark2 failed. A disk is full: OSError: "),
        ("WARNING it was not tuned", "Its container on spark2 ended with code 1, and its log names no reason"),
    )},
    "a rank that raised and lives on": (  # as a vLLM 0.32 over two hosts whose second rank had no room for its cache
        [f"{WORKER}     raise ValueError(", f"{WORKER} ValueError: Too little memory.",
         "RuntimeError: Worker failed with error 'Too little memory.', please check the stack trace above",
         "    raise RuntimeError(",
         "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}",
         ended(0, "this box")],
        1, "The engine died: [spark2] ValueError: Too little memory.",
        [f"{WORKER}     raise ValueError(", f"{WORKER} ValueError: Too little memory.", ended(0, "this box")]),
    **{f"killed without a word on {box}": (
        ["INFO loading", LOADING, ended(rank, box, 137)], 137,
        f"Its container on {box} was killed (SIGKILL) without a word", [LOADING, ended(rank, box, 137)] if rank else None)
       for rank, box in enumerate(("this box", "spark2"))},
    **{f"nothing of the rank is known, {box} ended": (
        [*HEAD_OF_LOST_RANK, ended(rank, box)], 1, "The engine died: ValueError: what rank 0 says when a rank has gone",
        None) for rank, box in enumerate(("this box", "spark2"))},
}  # fmt: skip


@pytest.mark.parametrize(("lines", "code", "message", "kept"), LOST.values(), ids=LOST)
def test_the_rank_that_ended_an_engine_is_named_with_its_own_lines(
    lines: list[str], code: int | None, message: str, kept: list[str] | None
) -> None:
    failure = adapter(EngineKind.VLLM).classify(lines, code)
    assert failure.message.startswith(message)
    assert failure.log_tail == tuple(lines if kept is None else kept)
    if code in (None, 0):
        assert failure.code == "peer_lost"


def test_the_kernel_s_log_of_its_node_tells_why_a_process_was_killed() -> None:
    failure = adapter(EngineKind.VLLM).classify([f"{WORKER_DIED} (exit code: None)"], None)
    assert failure.hint == "It was killed, or crashed in its driver; `journalctl -k` on spark2 tells of both."


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


LLAMA_START = """
00:00:09 0.00.000.744 I srv  llama_server: initializing ...
00:00:09 0.00.010.428 I srv    load_model: loading model 'models/tiny-qwen3.gguf'
00:00:09 0.07.250.213 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'false'
00:00:09 0.07.256.523 I srv  llama_server: listening on http://127.0.0.1:8201
"""


def test_lines_that_are_read_late_count_from_the_time_that_they_bear() -> None:
    found = stages(EngineKind.LLAMACPP, LLAMA_START, "00:00:01", "00:00:09", "00:00:10")
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
