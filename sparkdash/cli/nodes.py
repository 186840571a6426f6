"""`sparkdash nodes`: the other boxes that engines run on, listed, added and removed."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import ask_or_refuse, confirm, is_interactive, print_json, print_note, print_table, print_text
from sparkdash.cli.parameters import AsJson, Yes
from sparkdash.cli.running_daemon import daemon_state, reload_daemon
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.units import DASH, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkdash.domain.node import Link, Node, NodeFacts, NodeState
    from sparkdash.nodes.discover import FoundBox
    from sparkdash.nodes.node_file import NodeTable
    from sparkdash.settings import Settings

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
EQUAL_S = 0.5
"""Difference of clocks below which they count as equal; the reading itself takes some of it."""
HEAD = ("name", "ssh", "state", "link", "rate", "podman", "driver", "host key")
LEAST = ("host key", "driver", "podman", "rate", "link")


@app.callback()
def nodes(
    context: typer.Context,
    discover: Annotated[bool, typer.Option("--discover", help="Look for boxes behind the fast ports.")] = False,
    interface: Annotated[str | None, typer.Option(help="With --discover: look behind this interface instead.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Other boxes that engines run on, such as a second Spark.

    Without a command: list them, and whether they can be reached. Each is reached over ssh with your own key. Nothing
    is installed there, no password is kept, and no port is opened. `sparkdash doctor --node NAME` examines one.
    --discover shows the boxes behind the fast ports and asks for each whether to add it; --yes adds all. Then it says
    how three or more are connected.

    \b
    Examples:
      sparkdash nodes
      sparkdash nodes --json | jq '.nodes[] | [.name, .state.status]'
      sparkdash nodes --discover
      sparkdash nodes add spark2 --ssh ubuntu@192.168.177.12
      sparkdash nodes copy qwen3-235b --to spark2
      sparkdash nodes bench spark2
      sparkdash nodes remove spark2
    """
    if context.invoked_subcommand is None and discover:
        _discover(interface, yes=yes, as_json=as_json)
    elif context.invoked_subcommand is None:
        _list(as_json=as_json)


def complete_node(incomplete: str) -> list[str]:
    from sparkdash.nodes import node_file

    try:
        nodes = node_file.read_nodes(node_file.nodes_file())
    except Exception:  # noqa: BLE001 - a Tab that fails must stay silent, whatever the reason
        return []
    return [node.name for node in nodes if node.name.startswith(incomplete)]


NodeName = Annotated[str, typer.Argument(metavar="NAME", help="The node's name.", autocompletion=complete_node)]
MaybeNodeName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A node's name.", autocompletion=complete_node)
]


def chosen_nodes(name: str | None) -> tuple[Node, ...]:
    """Return the nodes of that name, or all. Raises AdmissionError: node_unknown, no_nodes."""
    from sparkdash.nodes.node_file import nodes_file, read_nodes

    nodes = read_nodes(nodes_file())
    found = tuple(node for node in nodes if name in (None, node.name))
    if not nodes:
        raise AdmissionError(
            "There is no other node.", code="no_nodes", hint="`sparkdash nodes add NAME --ssh USER@HOST` adds one."
        )
    if not found:
        raise AdmissionError(
            f"There is no node {name!r}.",
            code="node_unknown",
            hint=f"There {'is' if len(nodes) == 1 else 'are'} {', '.join(node.name for node in nodes)}.",
        )
    return found


def one_node(name: str | None) -> Node:
    """Return the node of that name, or the only one. Raises AdmissionError: node_unknown, no_nodes, node_unclear."""
    found = chosen_nodes(name)
    if len(found) > 1:
        names = ", ".join(node.name for node in found)
        raise AdmissionError(f"There are several nodes: {names}.", code="node_unclear", hint="Name one of them.")
    return found[0]


def _list(*, as_json: bool) -> None:
    from sparkdash.nodes import node_file
    from sparkdash.nodes.ssh.ssh_command import fingerprint

    nodes = node_file.read_nodes(node_file.nodes_file())
    world = daemon_state()
    states = world.nodes if world else {}
    if as_json:
        print_json(
            {
                "nodes": [
                    {
                        **node.model_dump(mode="json"),
                        "fingerprint": fingerprint(node.host_key),
                        "state": states[node.name].model_dump(mode="json") if node.name in states else None,
                    }
                    for node in nodes
                ]
            }
        )
    elif not nodes:
        print_text("No other nodes. Add one with `sparkdash nodes add NAME --ssh USER@HOST`.")
    else:
        print_table(HEAD, [_row(node, states.get(node.name)) for node in nodes], "<<<<><<<", LEAST)
        for node in nodes:
            _print_trouble(states.get(node.name))


def _row(node: Node, state: NodeState | None) -> tuple[str, ...]:
    from sparkdash.nodes.ssh.ssh_command import fingerprint

    facts = state.facts if state else None
    link = next((each for each in facts.links if each.interface == state.link), None) if facts and state else None
    where = node.ssh if node.port == 22 else f"{node.ssh}:{node.port}"
    return (
        node.name,
        where,
        state.status if state else DASH,
        f"{link.interface} {link.address}" if link else node.interface or DASH,
        f"{link.rate_gbit_s:g} Gb/s" if link and link.rate_gbit_s else DASH,
        (facts.runtime_version if facts else None) or DASH,
        (facts.driver if facts else None) or DASH,
        fingerprint(node.host_key),
    )


def _print_trouble(state: NodeState | None) -> None:
    if state is None:
        return
    if state.reason:
        print_note(state.reason)
    if state.differs:
        print_note(f"{state.name} is back with {state.differs}; no engine over several boxes uses it.")
    if state.owed:
        print_note(f"{state.name} still has to end: {', '.join(state.owed)}.")


def _discover(interface: str | None, *, yes: bool, as_json: bool) -> None:
    import asyncio

    from sparkdash.nodes.discover import find_boxes
    from sparkdash.nodes.node_file import nodes_file, read_nodes

    ports = [interface] if interface else _fast_ports()
    found = asyncio.run(find_boxes(ports))
    known = {node.host_key: node.name for node in read_nodes(nodes_file())}
    names = _names(found, known)
    new = [box for box in found if box.host_key not in known]
    _print_found(found, names, {box.host_key for box in new}, as_json=as_json)
    if not new:
        print_note(f"No new box with sshd answers behind {', '.join(ports)}.")
        print_note("`sparkdash nodes add NAME --ssh USER@HOST` adds one by its address.")
    _add_all([(names[box.host_key], box) for box in new if yes or _is_wanted(names[box.host_key], box)])
    _print_topology()


def _print_topology() -> None:
    """Say how three and more boxes are connected, as the doctor does."""
    import asyncio

    from sparkdash import settings
    from sparkdash.doctor.nodes.examine import examine_registered
    from sparkdash.nodes.node_file import nodes_file, read_nodes

    nodes = read_nodes(nodes_file())
    found = asyncio.run(examine_registered(settings.load_settings(), nodes, ("topology",))) if nodes else ()
    for each in found:
        print_note(each.evidence)


def _add_all(chosen: list[tuple[str, FoundBox]]) -> None:
    failed = [name for name, box in chosen if not _add_found(name, box)]
    if failed:
        raise typer.Exit(1)


def _fast_ports() -> list[str]:
    from sparkdash.nodes.discover import fast_ports

    if ports := fast_ports():
        return ports
    raise HostError(
        "No fast port of this box is up.",
        code="no_fast_port",
        hint="Connect a cable, or name another one: `sparkdash nodes --discover --interface NAME`.",
    )


def _print_found(found: Sequence[FoundBox], names: Mapping[str, str], new: set[str], *, as_json: bool) -> None:
    from sparkdash.nodes.ssh.ssh_command import fingerprint

    heads = ("name", "ssh", "behind", "host key")
    rows = [(names[box.host_key], box.address, ", ".join(box.interfaces), fingerprint(box.host_key)) for box in found]
    if as_json:
        told = [(dict(zip(heads, row, strict=True)), box) for row, box in zip(rows, found, strict=True)]
        print_json({"found": [values | {"new": box.host_key in new} for values, box in told]})
    elif rows:
        print_table(heads, rows, "<<<<", ("behind",))


def _is_wanted(name: str, box: FoundBox) -> bool:
    """Ask whether to add the box; without a terminal say how."""
    if not is_interactive():
        print_note(f"`sparkdash nodes --discover --yes` adds {name} with the host key shown.")
        return False
    return confirm(f"Add {name}, and is the host key of {box.address} right?")


def _names(found: Sequence[FoundBox], known: Mapping[str, str]) -> dict[str, str]:
    """Name each box by its host key: as it is registered, as LLDP calls it, or with the next free number."""
    from sparkdash.domain.node import LOCAL, NODE_NAME

    names = dict(known)
    for box in found:
        free = (f"spark{number}" for number in itertools.count(2))
        told = (box.name or "").partition(".")[0].lower()
        taken = {*names.values(), LOCAL}
        offered = itertools.chain([told] if re.match(NODE_NAME, told) else (), free)
        names.setdefault(box.host_key, next(name for name in offered if name not in taken))
    return names


def _add_found(name: str, box: FoundBox) -> bool:
    """Log in to the box and add it; False, with the reason on stderr, where that fails."""
    import asyncio

    from sparkdash import settings
    from sparkdash.domain.node import Node
    from sparkdash.nodes.node_file import add_node, nodes_file, read_nodes

    node, path = Node(name=name, ssh=box.address, port=box.port, host_key=box.host_key), nodes_file()
    try:
        facts = asyncio.run(_log_in(node, read_nodes(path), settings.load_settings()))
    except SparkdashError as error:
        print_note(f"{name} is not added. {error.text()}")
        return False
    add_node(path, node)
    reload_daemon()
    print_note(_facts_text(facts))
    print_note(f"Added {name}.")
    return True


@app.command("add")
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
    from sparkdash.domain.node import NODE_NAME, Node
    from sparkdash.nodes import node_file
    from sparkdash.nodes.ssh.ssh_command import fingerprint as print_of

    if not re.match(NODE_NAME, name):
        raise typer.BadParameter("up to 31 small letters, digits and dashes", param_hint="NAME")
    path = node_file.nodes_file()
    others = node_file.read_nodes(path)
    node_file.refuse_taken_name(name, others)
    key, seen_port = asyncio.run(_first_sight(name, ssh, port))
    _accept(name, ssh, key, fingerprint, yes=yes)
    node = Node(name=name, ssh=ssh, port=seen_port, host_key=key, address=address, interface=interface, hf_home=hf_home)
    facts = asyncio.run(_log_in(node, others, settings.load_settings()))
    node_file.add_node(path, node)
    told = reload_daemon()
    if as_json:
        print_json({"node": node, "fingerprint": print_of(key), "facts": facts})
        return
    print_text(_facts_text(facts))
    print_note(f"Added {name}." + ("" if told else " The daemon uses it from its next start."))


async def _first_sight(name: str, target: str, port: int | None) -> tuple[str, int]:
    from sparkdash.nodes import discover

    seen = await discover.resolve(target)
    return await discover.ask_host_key(name, target, port or seen.port), port or seen.port


def _accept(name: str, target: str, key: str, wanted: str | None, *, yes: bool) -> None:
    from sparkdash.nodes.ssh.ssh_command import fingerprint

    shown = fingerprint(key)
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
    unconfirmed = HostError(
        f"The host key of {target} is not confirmed: {shown}.",
        code="host_key_unconfirmed",
        hint=f"Compare it with the box's own, then add `--fingerprint {shown}`.",
    )
    ask_or_refuse(f"Is that the key of {name}?", unconfirmed)


async def _log_in(node: Node, others: NodeTable, known: Settings) -> NodeFacts:
    from sparkdash.nodes.boxes import open_boxes, refuse_known_box

    async with open_boxes((*others, node), known.runtime, str(known.hf_home.expanduser())) as (here, there):
        *rest, (_, new) = there
        return refuse_known_box(new, (here, *(box for _, box in rest)))


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


@app.command("remove")
def remove(
    name: NodeName,
    force: Annotated[bool, typer.Option("--force", help="Even while engines run there; they go on unseen.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a box, and the host key that was pinned for it.

    Nothing changes on the box itself. Engines that run there must be stopped first.

    \b
    Examples:
      sparkdash nodes remove spark2
    """
    from sparkdash.nodes import node_file

    engines = [] if force else _engines_on(name)
    if engines:
        raise AdmissionError(
            f"{name} runs {' and '.join(engines)}.",
            code="node_in_use",
            hint=f"Stop it first (`sparkdash stop {engines[0]}`), or add --force to leave it running unseen.",
        )
    left = node_file.remove_node(node_file.nodes_file(), name)
    reload_daemon()
    if as_json:
        print_json({"removed": name, "left": [node.name for node in left]})
        return
    print_text(f"Removed: {name}.")


def _engines_on(name: str) -> list[str]:
    from sparkdash.domain.engine import EngineState

    world, gone = daemon_state(), (EngineState.ABSENT, EngineState.FAILED)
    engines = world.engines if world else {}
    return [each for each, engine in engines.items() if name in engine.nodes and engine.state not in gone]
