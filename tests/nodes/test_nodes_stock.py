"""Files and images of profiles on other nodes; a node that does not answer is left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from sparkdash.domain.images import NodeStock
from sparkdash.domain.node import NodeLaunch, NodeState, NodeStatus
from sparkdash.domain.profile import EngineKind, ModelRef, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, run_command
from sparkdash.nodes.shipping.shipper import stock_of_nodes

HUB = "hub/models--org--m"
WHOLE = ("refs/main=c1", "snapshots/c1/config.json", "snapshots/c1/model.safetensors=weights")


def write(folder: Path, files: Sequence[str]) -> None:
    for file in files:
        name, _, content = file.partition("=")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


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
    return ProfileSummary(
        name=name, about="", engine=EngineKind.VLLM, engine_version=None, image=image, serves=(), context=None,
        needs_bytes=None, nodes=1, cannot_run=None, nearest=None, published_decode_tok_s=None, published_note=None,
        speculation=None, fingerprint="f", simulated=False, weights=weights,
    )  # fmt: skip


async def test_each_node_that_answers_is_told_with_what_it_has(tmp_path: Path) -> None:
    write(tmp_path / HUB, WHOLE)
    directory: Any = NodesOnThisBox(tmp_path, {"a:1": 5})
    whole, missing = ModelRef(hf="org/m"), ModelRef(hf="org/other")
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
