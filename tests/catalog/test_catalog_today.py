"""The profiles of autumn 2026 against the files that they are from: their figures, and their command lines by flag.

tests/data/published/autumn.csv quotes each figure's line; tests/data/published/launches has the command lines.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sparkdash import catalog
from sparkdash.domain.node import Link, NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of
from sparkdash.paths import shipped_profiles

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
PROFILES = catalog.load_catalog([shipped_profiles()]).profiles
LAUNCHES = sorted((PUBLISHED / "launches").iterdir())
with (PUBLISHED / "autumn.csv").open() as _file:
    ROWS = list(csv.DictReader(_file))

OURS = {
    "host", "port", "name", "served-model-name", "node-rank", "rank", "nnodes", "master", "master-addr", "master-port",
    "revision", "distributed-executor-backend", "enable-prompt-tokens-details", "disable-access-log-for-endpoints",
    "otlp-traces-endpoint",
}  # fmt: skip
"""Flags that sparkdash sets by itself."""

READ = {"load-format", "safetensors-load-strategy", "model-loader-extra-config"}
"""vLLM's default loader is slow on a GB10; instanttensor needs a patch for this draft."""
CHANGED = {
    "qwen3.8-flash-next": {"vision-image-tokens"},  # the build reads TENSORFOLD_IMAGE_TOKENS, which the kit sets too
    "qwen3.8-27b/tensorfold": {"drafter"},  # named, where the kit has it found
    "qwen3.8-flash-next/two-sparks": READ,
    "mimo-v2.6-flash": {"speculative-config"},  # the drafter's folder
    "mimo-v2.6-flash/sparkring-4": {"speculative-config"},
    "mimo-v2.6-flash/three-sparks": READ | {"kv-cache-dtype"},  # which needs a patch of vLLM
    "minimax-m3": READ,
    "qwen3.6-35b-a3b/beside": READ,
    "deepseek-v4-flash": READ,
    "deepseek-v4.1-flash": {"hf-overrides"},  # the tables' folder
}
"""Flags that differ from the source, each with its reason in the profile."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['profile']}:{row['workload']}")
def test_a_figure_is_that_of_its_source(row: dict[str, str]) -> None:
    """The profile names repository, commit and file, and its value stands in the quoted line."""
    source = f"{row['repository']}@{row['commit']}, {row['file']}"
    found = [
        getattr(figure, row["metric"])
        for figure in PROFILES[row["profile"]].published
        if (figure.workload, figure.source) == (row["workload"], source) and getattr(figure, row["metric"]) is not None
    ]
    assert found == [float(row["value"])]
    assert float(row["value"]) in [float(hit) for hit in re.findall(r"\d+(?:\.\d+)?", row["quote"].replace(",", ""))]


@pytest.mark.parametrize("file", LAUNCHES, ids=lambda file: file.stem)
def test_a_command_line_has_the_flags_of_its_source(file: Path) -> None:
    """Each flag with its value, but for those that sparkdash sets, and those that are changed for a reason."""
    name = file.stem.replace(".txt", "")
    profile = next(one for one in PROFILES.values() if one.name.replace("/", ".") == name)
    _, _, *lines = file.read_text().splitlines()
    theirs = _flags([word for line in lines for word in line.split(" ")])
    ours = _flags(_argv(profile))
    differing = {flag for flag in theirs.keys() | ours.keys() if theirs.get(flag) != ours.get(flag)}
    assert differing - OURS == CHANGED.get(profile.name, set()) & differing
    assert CHANGED.get(profile.name, set()) & differing or profile.name not in CHANGED


def _argv(profile: Profile) -> tuple[str, ...]:
    nodes = tuple(
        NodeLaunch(
            name=f"spark{rank}",
            address=f"192.168.100.{10 + rank}",
            hf_home="/hf",
            cache_dir="/cache",
            link=Link(interface="enp1s0f1np1", hca="rocep1s0f1"),
        )
        for rank in range(profile.nodes)
    )
    launch = LaunchContext(
        port=18000, containerised=True, hf_home="/hf", cache_dir="/cache", master_port=29551,
        nodes=nodes if profile.nodes > 1 else (),
    )  # fmt: skip
    return adapter_of(profile).container(profile, launch).argv


def _flags(words: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return flags with their values: JSON by its content, numbers by their value, a bare flag as True."""
    found: dict[str, list[str]] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word.removeprefix("--")
            found[flag] = []
        elif flag:
            found[flag].append(word)
    return {flag: [_value(word) for word in values] or True for flag, values in found.items()}


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word
