"""Profile of the tests' real vLLM, a tiny model under its CPU build, and where it keeps compiled code between loads."""

from pathlib import Path
from typing import Any


def tiny_vllm(engine: Path, name: str, image: str, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Profile document; `engine` is what tests/real/setup.sh made."""
    variables, mount = kept_cache(engine)
    return {
        "profile": name,
        "about": "a quarter of a million random parameters, for tests",
        "engine": "vllm",
        "engine_version": "0.32",
        "image": image,
        "command": [str(engine / "venv/bin/vllm"), "serve"],
        "gpu": False,
        "models": {"target": {"path": str(engine / "tiny-qwen3")}},
        "mounts": [*mounts, mount],
        "tmpfs": ["/scratch"],
        "shm_size": "256m",
        "env": {
            **dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), "/scratch"),
            "HF_HOME": "/scratch/hf",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
            **variables,
        },
        # In bfloat16, vLLM 0.32's attention ends in an illegal instruction on a processor with AMX: at the first
        # embedding, and where a conversation goes on from restored blocks.
        "args": {"max-model-len": 4096, "max-num-seqs": 8, "enforce-eager": True, "block-size": 32, "dtype": "float32"},
    }


def kept_cache(engine: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Variables and a mount of a profile, for what each load would find out and compile anew in ten seconds.

    vLLM asks a process of its own about the model's class, and torch compiles some of the sampling. The folder lies
    beside the engine that tests/real/setup.sh made.
    """
    folder = engine / "cache"
    folder.mkdir(exist_ok=True)
    variables = {"VLLM_CACHE_ROOT": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "torchinductor")}
    return variables, {"source": str(folder), "target": str(folder), "read_only": False}
