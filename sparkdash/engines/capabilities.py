"""Capabilities of an engine, from its command line and model: tasks, vision, protocols, chat templates.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkdash.domain.profile import ApiProtocol, ArgValue, EngineKind, Profile
from sparkdash.domain.task import ROUTE_TASKS, Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.argv import lookup, version_of
from sparkdash.engines.generic.known_servers import server_of
from sparkdash.engines.registry import adapter_of

_MUST_BE_ASKED = frozenset({"gemma3", "llama4", "step3_vl", "inkling"})
"""Models whose vision SGLang leaves out unless `--enable-multimodal` asks for it (its `mm_disabled_models`, 2026)."""
_TOWER = ("mmproj", "mmproj-url")
"""llama.cpp's flags for a separate vision tower. A tower that llama.cpp fetches itself comes with the model."""


def reads_images(profile: Profile, target: WeightFacts | None) -> bool | None:
    """Whether the launch reads images; None while unknown. `target`: facts about the target model's weights."""
    args = profile.args
    if profile.engine is EngineKind.LLAMACPP:
        return _llamacpp_reads_images(args)
    if target is None:
        return None
    if profile.engine is EngineKind.VLLM:
        return target.sees and not lookup(args, "language-model-only") and _image_limit(args) != 0
    if profile.engine is EngineKind.SGLANG:
        asked = lookup(args, "enable-multimodal")
        return target.sees and bool(asked if asked is not None else target.architecture not in _MUST_BE_ASKED)
    return None


def _llamacpp_reads_images(args: Mapping[str, ArgValue]) -> bool | None:
    """Whether a llama-server has a vision tower; None when it fetches the model itself."""
    if lookup(args, "no-mmproj"):
        return False
    return bool(lookup(args, *_TOWER)) or (None if lookup(args, "hf-repo") else False)


def _image_limit(args: Mapping[str, ArgValue]) -> object:
    """Return vLLM's limit of images per prompt: the flag itself, or one of the image options."""
    if (alone := lookup(args, "limit-mm-per-prompt.image")) is not None:
        return alone
    limits = lookup(args, "limit-mm-per-prompt")
    if isinstance(limits, str):
        try:
            limits = json.loads(limits)
        except ValueError:
            return None
    limit = limits.get("image") if isinstance(limits, dict) else None
    return limit.get("count") if isinstance(limit, dict) else limit


_ELSEWHERE = ("tokenizer", "tokenizer-mode", "tokenizer-revision", "exclude-tools-when-tool-choice-none")
"""vLLM flags that render prompts differently from the model's own files, unless set to `auto` or `hf`."""


class Prompting(NamedTuple):
    """Deviations of a profile from its model's own prompt rendering."""

    template: str | None = None
    """Another chat template: its path as the engine sees it, or the template itself."""
    words: Mapping[str, Any] = {}
    """Variables given to the template with every request."""
    in_parts: bool | None = None
    """Whether messages reach the template as lists of parts; None: as the template itself iterates them."""


def prompting(profile: Profile) -> Prompting | str:
    """Describe how this profile's engine renders prompts; where unknown, the reason as the end of a sentence."""
    if profile.engine is not EngineKind.VLLM:
        return f"how an engine of kind {profile.engine} writes prompts is not known here"
    if changed := next(
        (flag for flag in _ELSEWHERE if lookup(profile.args, flag) not in (None, False, "auto", "hf")), None
    ):
        return f"its profile has --{changed}"
    template, given = lookup(profile.args, "chat-template"), lookup(profile.args, "chat-template-content-format")
    words = _object(lookup(profile.args, "default-chat-template-kwargs"))
    if words is None:
        return "its profile's --default-chat-template-kwargs is no JSON object"
    return Prompting(
        template=None if template is None else str(template),
        words=words,
        in_parts={"openai": True, "string": False}.get(str(given)),
    )


def _object(value: ArgValue) -> dict[str, Any] | None:
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def lacks_protocol(profile: Profile, version: str | None, protocol: ApiProtocol) -> bool | None:
    """Whether the engine lacks this protocol; None when only the engine knows.

    `version` is the engine's own report; without it the profile's version counts.
    """
    if profile.protocols is not None:
        return protocol not in profile.protocols
    if profile.engine is EngineKind.GENERIC:
        if protocol.value not in server_of(profile).routes:
            return True
        # the description of a known server is of one version, and the profile's may be older
        return False if profile.server and "routes" in profile.server.model_fields_set else None
    since = adapter_of(profile).speaks_since
    if protocol not in since:
        return None
    first, found = since[protocol], version_of(version or profile.engine_version)
    if first is None:
        return True
    return None if found is None else found < first


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
            return _llamacpp_tasks(profile)
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


def _llamacpp_tasks(profile: Profile) -> frozenset[Task]:
    """Tasks of llama-server: without the flag it refuses embeddings, with the flag everything else."""
    if lookup(profile.args, "reranking", "rerank"):
        return POOLING
    return frozenset({Task.EMBED}) if lookup(profile.args, "embedding", "embeddings") else GENERATING
