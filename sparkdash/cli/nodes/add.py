"""`sparkdash nodes add`: pin a box's host key, log in once, and write the box down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, Yes
from sparkdash.units import DASH, size

if TYPE_CHECKING:
    from sparkdash.domain.node import Link, Node, NodeFacts


EQUAL_S = 0.5
"""Difference of clocks below which they count as equal; the reading itself takes some of it."""


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits, dashes: spark2.")],
    ssh: Annotated[str, typer.Option(metavar="USER@HOST", help="Address as for ssh; a Host of ssh_config will do.")],
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of sshd; otherwise as ssh_config says.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="IP", help="Its address on the fast link; else detected.")
    ] = None,
    interface: Annotated[str | None, typer.Option(help="Its interface on the fast link; else detected.")] = None,
    hf_home: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Its Hugging Face cache, if not ~/.cache/huggingface.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="SHA256:…", help="Accept the host key only with this fingerprint.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add a box that engines may run on.

    Shows the box's host key and asks whether it is right; from then on only this key is accepted. Without a terminal
    give --fingerprint, or --yes to accept any. Then it logs in once with your key and shows what it found. A running
    daemon uses the box at once.

    \b
    Examples:
      sparkdash nodes add spark2 --ssh ubuntu@192.168.177.12
      sparkdash nodes add spark2 --ssh spark2 --fingerprint SHA256:VP7b+k4pX0v…
      sparkdash nodes add spark2 --ssh ubuntu@spark2 --interface enp1s0f1np1
      sparkdash nodes add spark2 --ssh spark2 --yes --json | jq .facts.links

    On the other box `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints the fingerprint to compare with.
    """
    import asyncio

    from sparkdash import settings
    from sparkdash.cli.running_daemon import reload_daemon
    from sparkdash.domain.node import NODE_NAME
    from sparkdash.nodes import node_file

    if not re.match(NODE_NAME, name):
        raise typer.BadParameter("up to 31 small letters, digits and dashes", param_hint="NAME")
    path = node_file.nodes_file()
    node_file.refuse_taken_name(name, node_file.read_nodes(path))
    key, seen_port = asyncio.run(_first_sight(name, ssh, port))
    _accept(name, ssh, key, fingerprint, yes=yes)
    from sparkdash.domain.node import Node as NewNode

    node = NewNode(
        name=name, ssh=ssh, port=seen_port, host_key=key, address=address, interface=interface, hf_home=hf_home
    )
    facts = asyncio.run(_log_in(node, settings.load_settings().runtime))
    node_file.add_node(path, node)
    told = reload_daemon()
    if as_json:
        print_json({"node": node, "fingerprint": _fingerprint(key), "facts": facts})
        return
    print_text(_facts_text(facts))
    print_note(f"Added {name}." + ("" if told else " The daemon uses it from its next start."))


async def _first_sight(name: str, target: str, port: int | None) -> tuple[str, int]:
    from sparkdash.nodes.ssh import host_keys

    seen = await host_keys.resolve(target)
    return await host_keys.ask_host_key(name, target, port or seen.port), port or seen.port


def _accept(name: str, target: str, key: str, wanted: str | None, *, yes: bool) -> None:
    from sparkdash.errors import HostError

    shown = _fingerprint(key)
    if wanted is not None:
        if wanted.removeprefix("SHA256:").rstrip("=") != shown.removeprefix("SHA256:"):
            raise HostError(
                f"{target} shows the host key {shown}, not {wanted}.",
                code="host_key_changed",
                hint="Another machine may answer in its place. Compare on the box itself: "
                "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`.",
            )
        return
    print_note(f"{target} shows the host key {key.split()[0]} {shown}")
    if yes:
        return
    if not is_interactive():
        raise HostError(
            f"The host key of {target} is not confirmed: {shown}.",
            code="host_key_unconfirmed",
            hint=f"Compare it with the box's own, then add `--fingerprint {shown}`.",
        )
    if not confirm(f"Is that the key of {name}?"):
        raise typer.Exit(1)


def _fingerprint(key: str) -> str:
    from sparkdash.nodes.ssh.ssh_command import fingerprint

    return fingerprint(key)


async def _log_in(node: Node, runtime: str) -> NodeFacts:
    """Read the facts of the node over its first connection. Raises HostError."""
    from sparkdash.nodes.ssh.connection import NodeConnection
    from sparkdash.nodes.ssh.facts import read_facts

    connection = NodeConnection(node)
    try:
        return await read_facts(connection, runtime)
    finally:
        await connection.close()


def _facts_text(facts: NodeFacts) -> str:
    offset = facts.clock_offset_s
    rows = [
        ("host", f"{facts.hostname} ({facts.arch})"),
        ("podman", facts.runtime_version or "not found: engines need it"),
        ("driver", f"{facts.driver or DASH}, CUDA {facts.cuda or DASH}"),
        ("disk", f"{size(facts.disk_free)} free" if facts.disk_free is not None else DASH),
        ("clock", DASH if offset is None else f"{offset:+.1f} s" if abs(offset) >= EQUAL_S else "equal"),
        *(("link", _link_text(link)) for link in facts.links),
    ]
    return "\n".join(f"{label:8} {text}" for label, text in rows)


def _link_text(link: Link) -> str:
    rate = DASH if link.rate_gbit_s is None else f"{link.rate_gbit_s:g} Gb/s"
    rdma = f", {link.hca} GID {DASH if link.gid_index is None else link.gid_index}" if link.hca else ""
    return f"{link.interface} {link.address}/{link.prefix}, {rate}, MTU {link.mtu or DASH}{rdma}"
