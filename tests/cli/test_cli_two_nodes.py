"""`run --dry-run` and `profiles export` of a profile for two nodes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

SECOND = '[spark2]\nssh = "two@10.0.0.2"\nhost_key = "ssh-ed25519 AAAA"\naddress = "192.168.100.11"\n'


@pytest.mark.usefixtures("own_folders")
def test_a_dry_run_prints_each_nodes_command_under_its_name(sparkdash: Run) -> None:
    """All of it is text for a shell; what is found only at a start has a placeholder, which is explained."""
    done = sparkdash("use", "qwen3-235b/multi-node", "--dry-run")
    heads = [line for line in done.out.splitlines() if line.startswith("# ")]
    assert heads == ["# on this box", "# on SECOND_NODE"]
    commands = [shlex.split(part.replace("\\\n", "")) for part in done.out.split("# on ")[1:]]
    assert [command[command.index("--node-rank") + 1] for command in commands] == ["0", "1"]
    assert "NCCL_SOCKET_IFNAME=INTERFACE_OF_local" in commands[0]
    assert "Words such as ADDRESS_OF_" in done.err


def test_a_dry_run_names_the_node_that_was_added(sparkdash: Run, own_folders: Path) -> None:
    file = own_folders / "config" / "nodes.toml"
    file.write_text(SECOND)
    file.chmod(0o600)
    planned = sparkdash("use", "qwen3-235b", "--dry-run", "--json").json()
    assert [one["node"] for one in planned["nodes"]] == ["local", "spark2"]
    assert planned["nodes"][0]["argv"] == planned["argv"]
    assert "VLLM_HOST_IP=192.168.100.11" in planned["nodes"][1]["argv"]


@pytest.mark.usefixtures("own_folders")
def test_no_export_says_that_a_profile_needs_two_nodes(sparkdash: Run) -> None:
    refused = sparkdash("profiles", "export", "qwen3-235b", "--as", "quadlet")
    assert refused.code != 0
    assert "sparkdash use qwen3-235b --dry-run" in refused.err
