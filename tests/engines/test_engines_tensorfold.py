"""TensorFold: its memory, its two ranks and its command line, after its sources and the kits that start it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkdash.domain.node import NodeLaunch
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of, estimate_launch
from sparkdash.units import GIB


def profile(**keys: Any) -> Profile:
    models = {"target": ModelRef(hf="Vontra/Qwen3.8-27B-MLX-4bit"), "drafter": ModelRef(hf="z-lab/Qwen3.8-27B-DFlash2")}
    return Profile(name="m", engine=EngineKind.TENSORFOLD, image="x/y:1", models=models, **keys)


@pytest.mark.parametrize(
    ("variable", "gib", "term"),
    [("TENSORFOLD_KV_POOL_GIB", "40", "kv"), ("TENSORFOLD_CUDA_MEMORY_LIMIT_GB", "94", "utilization")],
)
def test_a_pinned_pool_and_a_limit_count_as_memory_that_is_taken(variable: str, gib: str, term: str) -> None:
    terms = {one.name: one for one in estimate_launch(profile(env={variable: gib}), {}, 121 * GIB).terms}
    assert terms[term].bytes == int(gib) * GIB
    assert variable in terms[term].source


def test_without_either_the_cache_is_unknown_and_the_sum_with_it() -> None:
    assert estimate_launch(profile(), {}, 121 * GIB).total_bytes is None


@pytest.mark.parametrize(
    ("args", "said"),
    [({"drafter": "{drafter}"}, "dflash2"), ({"mtp-drafts": 6}, "mtp k=6"), ({"no-drafts": True}, None), ({}, None)],
)
def test_speculation_is_named_by_what_drafts(args: dict[str, Any], said: str | None) -> None:
    assert adapter_of(profile()).speculation(profile(args=args)) == said


def test_two_ranks_differ_in_their_rank_alone_and_meet_at_the_serving_box(launch: LaunchContext) -> None:
    two = profile(nodes=2, args={"tp": 2})
    pair = tuple(
        NodeLaunch(name=name, address=address, hf_home="/hf", cache_dir="/cache")
        for name, address in (("local", "192.168.100.10"), ("spark2", "192.168.100.11"))
    )
    head = adapter_of(two).container(two, replace(launch, nodes=pair, master_port=29600))
    assert head.argv[-2:] == ("--rank", "0")
    assert head.workers[0].argv == (*head.argv[:-1], "1")
    assert head.argv[-6:-2] == ("--master", "192.168.100.10", "--master-port", "29600")
