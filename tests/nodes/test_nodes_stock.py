"""What other nodes have of profiles: the script's rules are this box's, and a node that does not answer is left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from sparkdash.domain.images import NodeStock
from sparkdash.domain.node import NodeLaunch, NodeState, NodeStatus
from sparkdash.domain.profile import EngineKind, ModelRef, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, run_command
from sparkdash.host.local_weights import find_weights
from sparkdash.nodes.shipping import stock_script
from sparkdash.nodes.shipping.stock import stock_of_nodes

HUB = "hub/models--org--m"
FILES: dict[str, Sequence[str]] = {
    "nothing": (),
    "whole": ("refs/main=c1", "snapshots/c1/config.json", "snapshots/c1/model.safetensors"),
    "a shard is missing": ("refs/main=c1", "snapshots/c1/model-00001-of-00002.safetensors"),
    "both shards": ("refs/main=c1", *(f"snapshots/c1/model-0000{number}-of-00002.safetensors" for number in (1, 2))),
    "the index lists more": (
        "refs/main=c1",
        'snapshots/c1/model.safetensors.index.json={"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}',
        "snapshots/c1/one.safetensors",
    ),
    "no weights": ("refs/main=c1", "snapshots/c1/config.json"),
    "no reference": ("snapshots/c1/model.safetensors",),
    "another revision": ("refs/v2=c2", "snapshots/c2/model.safetensors"),
    "a part that is being copied": ("refs/main=c1", "snapshots/c1/.model.safetensors.aB3dEf"),
    "of two quantisations": ("refs/main=c1", "snapshots/c1/m-Q4_K_M.gguf", "snapshots/c1/m-Q8_0-00001-of-00002.gguf"),
}
"""Repositories by what they are like; `=` divides a file's name from its content."""
REFS = {
    "main": ModelRef(hf="org/m"),
    "v2": ModelRef(hf="org/m", revision="v2"),
    "commit": ModelRef(hf="org/m", revision="c1"),
    "Q4_K_M": ModelRef(hf="org/m:Q4_K_M"),
    "Q8_0": ModelRef(hf="org/m:Q8_0"),
}


def write(folder: Path, files: Sequence[str]) -> None:
    """Write the files of a repository."""
    for file in files:
        name, _, content = file.partition("=")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def there(ref: ModelRef, hf_home: Path) -> bool:
    """What the script tells of one model."""
    (found,) = stock_script.look([{"hf": ref.hf, "path": ref.path, "revision": ref.revision}], str(hf_home))
    return found


@pytest.mark.parametrize("ref", REFS.values(), ids=REFS)
@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_a_model_of_the_cache_is_complete_there_where_it_would_be_here(
    tmp_path: Path, files: Sequence[str], ref: ModelRef
) -> None:
    write(tmp_path / HUB, files)
    assert there(ref, tmp_path) is find_weights(ref, tmp_path).here


@pytest.mark.parametrize(
    ("path", "files"),
    [("m", []), ("m", ["m/engine.plan"]), ("m", ["m/a.safetensors"]), ("m", ["m/a-00001-of-00002.safetensors"]),
     ("m.gguf", ["m.gguf"]), ("m.gguf", []), ("m-00001-of-00002.gguf", ["m-00001-of-00002.gguf"])],
)  # fmt: skip
def test_a_model_at_a_path_is_complete_there_where_it_would_be_here(
    tmp_path: Path, path: str, files: list[str]
) -> None:
    write(tmp_path, files)
    ref = ModelRef(path=str(tmp_path / path))
    assert there(ref, tmp_path) is find_weights(ref, tmp_path).here


@pytest.mark.parametrize("name", ["m/.model.safetensors.aB3dEf", "m/.sparkdash-part/model.safetensors"])
def test_a_folder_that_is_being_copied_is_not_complete(tmp_path: Path, name: str) -> None:
    """Else a folder of unknown files is an engine's own format."""
    write(tmp_path, ["m/config.json", name])
    assert not there(ModelRef(path=str(tmp_path / "m")), tmp_path)


class NodesOnThisBox:
    """Two nodes whose scripts run here; the second one fails."""

    def __init__(self, hf_home: Path, images: Mapping[str, int]) -> None:
        self._hf_home, self._images = hf_home, images
        self.states = {
            name: NodeState(name=name, status=status, since=0.0)
            for name, status in (
                ("spark2", NodeStatus.REACHABLE), ("ill", NodeStatus.REACHABLE), ("off", NodeStatus.UNREACHABLE),
            )
        }  # fmt: skip
        self._node = ""

    def reachable(self, name: str) -> bool:
        return self.states[name].status is NodeStatus.REACHABLE

    def launch_on(self, names: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
        return tuple(NodeLaunch(name=n, address="", hf_home=str(self._hf_home), cache_dir="") for n in names)

    def runtime(self, name: str) -> NodesOnThisBox:
        return self

    def connection(self, name: str) -> NodesOnThisBox:
        if name == "ill":
            raise HostError("It does not answer.", code="node_unreachable")
        return self

    async def images(self, names: Sequence[str]) -> dict[str, int]:
        return {name: size for name, size in self._images.items() if name in names}

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes) -> CommandResult:
        return await run_command([sys.executable, *argv[1:]], deadline_s=30, stdin=stdin)


def profile(name: str, image: str | None, *weights: ModelRef) -> ProfileSummary:
    """A profile as the list knows it."""
    return ProfileSummary(
        name=name, about="", engine=EngineKind.VLLM, engine_version=None, image=image, serves=(), context=None,
        needs_bytes=None, nodes=1, cannot_run=None, nearest=None, published_decode_tok_s=None, published_note=None,
        speculation=None, fingerprint="f", simulated=False, weights=weights,
    )  # fmt: skip


async def test_each_node_that_answers_is_told_with_what_it_has(tmp_path: Path) -> None:
    write(tmp_path / HUB, FILES["whole"])
    directory: Any = NodesOnThisBox(tmp_path, {"a:1": 5})
    whole, missing = REFS["main"], ModelRef(hf="org/other")
    found = await stock_of_nodes(
        cast("Any", directory),
        [profile("p", "a:1", whole), profile("q", "b:1", whole, missing), profile("r", None)],
    )
    assert found == {
        "p": {"spark2": NodeStock(image=True, weights=True)},
        "q": {"spark2": NodeStock(image=False, weights=False)},
        "r": {"spark2": NodeStock()},
    }
    assert [found[name]["spark2"].is_complete for name in "pqr"] == [True, False, False]
    assert json.loads(NodeStock().model_dump_json()) == {"image": None, "weights": None}
