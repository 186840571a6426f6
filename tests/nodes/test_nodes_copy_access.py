"""The way of a copy to a node, and what profiles need that nodes have already."""

import json
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import summary

from sparkdash.domain.images import NodeStock
from sparkdash.domain.node import Node, NodeLaunch, NodeState, NodeStatus
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, run_command
from sparkdash.nodes.shipping.child import SshAccess
from sparkdash.nodes.shipping.shipper import stock_of_nodes

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2r0sYb0sJw3u7m0cYyYH8bq0n1o2p3q4r5s6t7u8v9"


@pytest.fixture(autouse=True)
def own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkdash.nodes.ssh.connection.socket_folder", lambda: tmp_path)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def access(port: int, fast: str | None, **more: str) -> SshAccess:
    node = Node(name="spark2", ssh="me@spark2.lan", port=port, host_key=KEY, **more)  # type: ignore[arg-type]
    return SshAccess(lambda _: fast, lambda _: node)


def test_bytes_go_over_the_fast_link_where_sshd_answers_there(listening: int) -> None:
    words = access(listening, "127.0.0.1").command("spark2", ["true"])
    assert "HostName=127.0.0.1" in words
    assert "HostKeyAlias=spark2" in words
    assert words[-2] == "me@spark2.lan"


def test_without_sshd_on_the_fast_link_the_usual_address_is_used(listening: int) -> None:
    words = access(listening, "127.0.0.99").command("spark2", ["true"])
    assert not [word for word in words if word.startswith("HostName=")]


def test_an_address_in_the_registry_wins_over_a_detected_one(listening: int) -> None:
    assert access(listening, "127.0.0.99", address="127.0.0.1").address("spark2") == "127.0.0.1"


def test_a_stream_has_a_connection_of_its_own_with_a_fast_cipher_and_without_compression(listening: int) -> None:
    words = list(access(listening, None).command("spark2", ["true"]))
    assert {"ControlPath=none", "ControlMaster=no", "Compression=no"} < set(words)
    assert next(word for word in words if word.startswith("Ciphers=")).startswith("Ciphers=aes128-gcm@openssh.com,")


def test_a_changed_key_is_a_matter_for_a_person_and_a_broken_link_is_not(listening: int) -> None:
    way = access(listening, None)
    changed = way.refusal("spark2", "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @")
    assert changed.code == "host_key_changed"
    assert way.refusal("spark2", "client_loop: send disconnect: Broken pipe") is None


def test_the_cache_there_is_the_usual_one_unless_the_registry_names_another(listening: int) -> None:
    assert access(listening, None).hf_home("spark2") == "~/.cache/huggingface"
    assert access(listening, None, hf_home="/data/hf").hf_home("spark2") == "/data/hf"


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

    def runtime(self, name: str) -> "NodesOnThisBox":
        return self

    def connection(self, name: str) -> "NodesOnThisBox":
        if name == "ill":
            raise HostError("It does not answer.", code="node_unreachable")
        return self

    async def images(self, names: Sequence[str]) -> dict[str, int]:
        return {name: size for name, size in self._images.items() if name in names}

    async def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes) -> CommandResult:
        return await run_command([sys.executable, *argv[1:]], deadline_s=30, stdin=stdin)


async def test_each_node_that_answers_is_told_with_what_it_has(tmp_path: Path) -> None:
    write(tmp_path / HUB, WHOLE)
    directory: Any = NodesOnThisBox(tmp_path, {"a:1": 5})
    whole, missing = ModelRef(hf="org/m"), ModelRef(hf="org/other")
    profiles = (
        summary("p", image="a:1", weights=(whole,)), summary("q", image="b:1", weights=(whole, missing)),
        summary("r", image=None, weights=()),
    )  # fmt: skip
    found = await stock_of_nodes(directory, profiles)
    assert found == {
        "p": {"spark2": NodeStock(image=True, weights=True)},
        "q": {"spark2": NodeStock(image=False, weights=False)},
        "r": {"spark2": NodeStock()},
    }
    assert [found[name]["spark2"].is_complete for name in "pqr"] == [True, False, False]
    assert json.loads(NodeStock().model_dump_json()) == {"image": None, "weights": None}
