"""The way of a copy to a node: which address, which cipher, and which complaints of ssh need a person."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkdash.domain.node import Node
from sparkdash.nodes.shipping.child import SshAccess

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
    assert changed is not None
    assert changed.code == "host_key_changed"
    assert way.refusal("spark2", "client_loop: send disconnect: Broken pipe") is None


def test_the_cache_there_is_the_usual_one_unless_the_registry_names_another(listening: int) -> None:
    assert access(listening, None).hf_home("spark2") == "~/.cache/huggingface"
    assert access(listening, None, hf_home="/data/hf").hf_home("spark2") == "/data/hf"
