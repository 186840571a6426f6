"""Facts of a box: the script on invented kernels, its answer here, and answers that are none."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.nodes import boxes
from sparkdash.nodes.ssh import facts_script

FAST, ADDRESS = "enp1s0f1np1", "192.168.100.2"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def gid_of(address: str) -> str:
    """The GID of RoCEv2 that stands for an IPv4 address."""
    one, two = struct.unpack("!HH", socket.inet_aton(address))
    return f"0000:0000:0000:0000:0000:ffff:{one:04x}:{two:04x}"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A box with a fast interface that has an RDMA port, a slow one, a bridge and the loopback."""
    net, rdma = tmp_path / "net", tmp_path / "infiniband"
    port = rdma / "rocep1s0f1" / "ports" / "1"
    for name, speed in ((FAST, 200_000), ("enP7s7", 10_000), ("lo", 0), ("podman0", 10_000)):
        write(net / name / "speed", f"{speed}\n")
        write(net / name / "mtu", "9000\n" if name == FAST else "1500\n")
        write(net / name / "operstate", "up\n")
        write(net / name / "address", f"4c:bb:47:00:00:{len(name):02x}\n")
    (net / "podman0" / "bridge").mkdir()
    (net / FAST / "device" / "infiniband" / "rocep1s0f1").mkdir(parents=True)
    write(port / "rate", "100 Gb/sec (2X NDR)\n")
    table = (("fe80::1", "IB/RoCE v1"), ("fe80::1", "RoCE v2"), (gid_of(ADDRESS), "IB/RoCE v1"))
    for index, (gid, kind) in enumerate((*table, (gid_of(ADDRESS), "RoCE v2"))):
        write(port / "gids" / str(index), gid + "\n")
        write(port / "gid_attrs" / "types" / str(index), kind + "\n")
        write(port / "gid_attrs" / "ndevs" / str(index), FAST + "\n")
    monkeypatch.setattr(facts_script, "NET", net)
    monkeypatch.setattr(facts_script, "RDMA", rdma)
    addresses = {FAST: ADDRESS, "enP7s7": "10.0.0.2", "lo": "127.0.0.1", "podman0": "10.88.0.1"}

    def ipv4(interface: str, what: int) -> bytes | None:
        text = addresses.get(interface) if what == facts_script.SIOCGIFADDR else "255.255.255.0"
        return socket.inet_aton(text) if text else None

    monkeypatch.setattr(facts_script, "ipv4", ipv4)
    return tmp_path


def test_links_are_those_with_an_address_the_fastest_first(kernel: Path) -> None:
    found = facts_script.read_facts("no-such-runtime", str(kernel))["links"]
    assert [(each["interface"], each["rate_gbit_s"], each["mtu"]) for each in found] == [
        (FAST, 100.0, 9000),
        ("enP7s7", 10.0, 1500),
    ]
    assert (found[0]["address"], found[0]["prefix"], found[0]["up"]) == (ADDRESS, 24, True)
    assert [each["hardware"] for each in found] == ["4c:bb:47:00:00:0b", "4c:bb:47:00:00:06"]


def test_the_gid_index_is_that_of_rocev2_with_the_interfaces_own_address(kernel: Path) -> None:
    found = facts_script.link_of(FAST)
    assert found is not None
    assert (found["hca"], found["gid_index"]) == ("rocep1s0f1", 3)
    for name in ("gids/3", "gid_attrs/types/3", "gid_attrs/ndevs/3"):
        (kernel / "infiniband/rocep1s0f1/ports/1" / name).unlink()
    found = facts_script.link_of(FAST)
    assert found is not None
    assert (found["hca"], found["gid_index"]) == ("rocep1s0f1", None)


def test_what_the_kernel_does_not_tell_is_unknown(kernel: Path) -> None:
    for name in ("speed", "mtu", "operstate"):
        (kernel / "net" / "enP7s7" / name).unlink()
    found = facts_script.link_of("enP7s7")
    assert found is not None
    assert (found["rate_gbit_s"], found["mtu"], found["up"], found["hca"], found["gid_index"]) == (None,) * 5
    write(kernel / "net" / "enP7s7" / "operstate", "lowerlayerdown")
    write(kernel / "net" / "enP7s7" / "speed", "-1")
    found = facts_script.link_of("enP7s7")
    assert found is not None
    assert (found["up"], found["rate_gbit_s"]) == (False, None)


def test_free_space_is_that_of_the_nearest_folder_there_is(tmp_path: Path) -> None:
    assert facts_script.free_bytes(tmp_path / "not" / "yet") is not None


async def test_this_box_tells_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await boxes.read_local_facts("no-such-runtime", "")
    assert (found.hostname, found.uid, found.runtime_version) == (os.uname().nodename, os.getuid(), None)
    assert abs(found.clock_offset_s or 0) < 5
    assert found.home == str(Path.home())


class Answering:
    """A connection whose script ends in one way."""

    def __init__(self, done: CommandResult) -> None:
        from sparkdash.domain.node import Node

        self.node = Node(name="spark2", ssh="spark2", host_key="ssh-ed25519 AAAA", hf_home="/srv/hf")
        self.done = done
        self.asked: list[list[str]] = []

    async def run(self, argv: list[str], **_: Any) -> CommandResult:
        self.asked.append(argv)
        return self.done


@pytest.mark.parametrize(
    ("done", "code", "words"),
    [
        (CommandResult(127, "", "sh: 1: python3: not found\n"), "node_python_missing", "spark2 has no python3"),
        (CommandResult(1, "", "Traceback\nOSError: no /sys\n"), "node_facts_failed", "OSError: no /sys"),
        (CommandResult(0, "", ""), "node_facts_failed", "The facts of spark2 cannot be read"),
        (CommandResult(0, "{}\n", ""), "node_facts_failed", "now"),
        (CommandResult(0, '{"now": 1, "hostname": 7}\n', ""), "node_facts_failed", "spark2"),
        (CommandResult(0, "[1]\n", ""), "node_facts_failed", "spark2"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_with_the_scripts_last_words(
    done: CommandResult, code: str, words: str
) -> None:
    asked: Any = Answering(done)
    with pytest.raises(HostError) as refused:
        await boxes.read_facts(asked, "podman")
    assert refused.value.code == code
    assert words in refused.value.message
    assert refused.value.hint
    assert asked.asked == [["python3", "-I", "-S", "-", "podman", "/srv/hf"]]


async def test_what_a_login_script_prints_before_the_answer_is_left_out() -> None:
    text = '{"now": 0, "hostname": "s2", "arch": "aarch64", "home": "/h", "uid": 1000}'
    asked: Any = Answering(CommandResult(0, f"Welcome to DGX OS\n{text}\n", ""))
    assert (await boxes.read_facts(asked, "podman")).hostname == "s2"
