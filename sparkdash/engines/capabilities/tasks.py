"""Tasks that an engine can do, by its command line and its model's kind.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.servers.routes import ROUTE_TASKS
from sparkdash.domain.task import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.launch.argv import lookup
from sparkdash.servers.registry import server_of

POOLING = frozenset({Task.EMBED, Task.RERANK})
GENERATING = frozenset({Task.GENERATE})

_POOLS = {
    "runner": ("pooling",),
    "convert": ("embed", "classify", "reward"),
    "task": ("embed", "embedding", "classify", "score", "reward"),
}
"""vLLM flags that turn a model into a pooling model: `--task` until 0.14, the others since."""
_ENCODERS = ("bert", "roberta", "mpnet", "gte", "t5encoder")
"""Parts of the `model_type` of models that only encode text."""


def tasks_of(profile: Profile, target: WeightFacts | None) -> frozenset[Task] | None:
    """Return the tasks that the engine can do; None while unknown.

    `target` is the model's kind by its weights, once they are read.
    """
    match profile.engine:
        case EngineKind.LLAMACPP:
            return _llamacpp(profile)
        case EngineKind.GENERIC:
            return frozenset(ROUTE_TASKS[route] for route in server_of(profile).routes if route in ROUTE_TASKS)
        case EngineKind.VLLM if any(lookup(profile.args, flag) in words for flag, words in _POOLS.items()):
            return POOLING
        case EngineKind.SGLANG if lookup(profile.args, "is-embedding"):
            return POOLING
    return _tasks_of_weights(target)


def _tasks_of_weights(target: WeightFacts | None) -> frozenset[Task] | None:
    kind = (target.architecture if target else None) or ""
    return POOLING if any(part in kind.lower() for part in _ENCODERS) else None


def _llamacpp(profile: Profile) -> frozenset[Task]:
    """Tasks of llama-server: without the flag it refuses embeddings, with the flag everything else."""
    if lookup(profile.args, "reranking", "rerank"):
        return POOLING
    return frozenset({Task.EMBED}) if lookup(profile.args, "embedding", "embeddings") else GENERATING
