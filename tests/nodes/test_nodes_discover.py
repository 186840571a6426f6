"""Boxes behind a port: who is found by LLDP, by the kernel's neighbours, and which of them are one box."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkdash.errors import HostError
from sparkdash.nodes import discover
from sparkdash.nodes.discover import FoundBox

NEIGHBOURS = [
    {"dst": "192.168.100.2", "lladdr": "4c:bb:47:00:00:02", "state": ["STALE"]},
    {"dst": "fe80::2", "lladdr": "4c:bb:47:00:00:02", "state": ["REACHABLE"]},
    {"dst": "fe80::3", "lladdr": "4c:bb:47:00:00:03", "state": ["DELAY"]},
    {"dst": "192.168.100.9", "state": ["FAILED"]},
    {"dst": "192.168.100.254", "lladdr": "4c:bb:47:00:00:fe", "state": ["STALE"]},
]
CHASSIS = {"name": [{"value": "Spark-B.lan"}], "mgmt-ip": [{"value": "10.0.0.2"}]}
LLDP = {"lldp": [{"interface": [{"name": name, "chassis": [CHASSIS]} for name in ("lo", "wlan9")]}]}
KEYS = {"10.0.0.2": "B", "192.168.100.2": "B", "fe80::2%lo": "B", "fe80::3%lo": "C"}


async def test_a_box_that_is_seen_in_several_ways_is_one_by_its_host_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, answer in (("ip", NEIGHBOURS), ("lldpctl", LLDP)):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def host_key(_: str, target: str, port: int) -> str:
        if target not in KEYS:
            raise HostError("no sshd", code="node_unreachable")
        return f"ssh-ed25519 {KEYS[target]}{port}"

    async def target_of(address: str) -> discover.SshTarget:
        return discover.SshTarget(address, 2222, "lab")

    monkeypatch.setattr(discover, "ask_host_key", host_key)
    monkeypatch.setattr(discover, "resolve", target_of)
    assert await discover.find_boxes(["lo"]) == [
        FoundBox("10.0.0.2", 2222, "ssh-ed25519 B2222", "Spark-B.lan", ("lo",)),
        FoundBox("fe80::3%lo", 2222, "ssh-ed25519 C2222", None, ("lo",)),
    ]


async def test_without_lldp_and_with_an_ip_that_fails_nobody_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await discover.find_boxes(["nothere0"]) == []
