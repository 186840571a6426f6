"""Registry of the other nodes: `nodes.toml` in the config folder, which only its owner may read."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from sparkdash import paths
from sparkdash.domain.cluster import Topology
from sparkdash.domain.node import LOCAL, Node
from sparkdash.errors import AdmissionError, HostError, ProfileError, expected
from sparkdash.paths import lock_file, replace_file
from sparkdash.settings import parse_toml

FILE_NAME = "nodes.toml"
_HEAD = """\
# Other boxes that engines run on. `sparkdash nodes add` and `sparkdash nodes remove` write this file.
# address, interface and hf_home may be written by hand: `sparkdash nodes add --help` says what they mean.
# So may, above the tables, `topology = "ring"` (or direct, line, switch): `sparkdash doctor` checks the cables by it.
"""
TOPOLOGY = "topology"

NodeTable = tuple[Node, ...]


def nodes_file() -> Path:
    return paths.config_dir() / FILE_NAME


def read_nodes(path: Path) -> NodeTable:
    """Return the nodes in the file's order; () without a file. Raises ProfileError: nodes_invalid."""
    try:
        found = parse_toml(paths.read_small_text(path))
        _topology(found)
        return tuple(_node(name, table) for name, table in found.items() if (name, type(table)) != (TOPOLOGY, str))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _invalid(f"{path}: {error.title} {where}: {expected(first)}.") from None
    except ValueError as error:  # TOML or UTF-8
        raise _invalid(f"{path}: {error}.") from None


def read_topology(path: Path) -> Topology | None:
    """Return how the boxes are connected, as the file declares it. Raises ProfileError: nodes_invalid."""
    read_nodes(path)
    with suppress(FileNotFoundError):
        return _topology(parse_toml(paths.read_small_text(path)))
    return None


def _topology(found: Mapping[str, object]) -> Topology | None:
    value = found.get(TOPOLOGY)
    declared = next((each for each in Topology if each == value), None)
    if declared is None and value is not None and not isinstance(value, dict):  # a table is a node of that name
        raise ValueError(f"{TOPOLOGY} is {value!r}: write one of {', '.join(Topology)}")
    return declared


def add_node(path: Path, node: Node) -> None:
    """Add a node to the file. Raises AdmissionError: node_name_taken; ProfileError or HostError of the file."""

    def with_it(nodes: NodeTable) -> NodeTable:
        refuse_taken_name(node.name, nodes)
        return (*nodes, node)

    _change(path, with_it)


def remove_node(path: Path, name: str) -> NodeTable:
    """Remove a node from the file; return the remaining nodes.

    Raises:
        AdmissionError: node_unknown.
        ProfileError, HostError: the file cannot be read or written.
    """

    def without_it(nodes: NodeTable) -> NodeTable:
        left = tuple(node for node in nodes if node.name != name)
        if len(left) == len(nodes):
            raise AdmissionError(
                f"There is no node {name!r}.", code="node_unknown", hint="`sparkdash nodes` shows them."
            )
        return left

    return _change(path, without_it)


def refuse_taken_name(name: str, nodes: NodeTable) -> None:
    """Raise AdmissionError (node_name_taken) for a name that this box or another node has."""
    if name == LOCAL:
        raise AdmissionError(
            f"{LOCAL!r} is the name of this box.", code="node_name_taken", hint="Choose another name, such as spark2."
        )
    if any(node.name == name for node in nodes):
        raise AdmissionError(
            f"There is a node {name!r} already.",
            code="node_name_taken",
            hint=f"Remove it first (`sparkdash nodes remove {name}`), or choose another name.",
        )


def _node(name: str, table: object) -> Node:
    if not isinstance(table, dict):
        text = f"{name} is not a table: write [NAME], and its values below"
        raise ValueError(text)  # noqa: TRY004 - as the parser of TOML does
    if name == LOCAL:
        raise ValueError(f"[{LOCAL}] is the name of this box: choose another name")
    return Node.model_validate({**table, "name": name})


def _change(path: Path, to: Callable[[NodeTable], NodeTable]) -> NodeTable:
    try:
        with lock_file(path):
            nodes, topology = to(read_nodes(path)), read_topology(path)
            declared = [f'{TOPOLOGY} = "{topology}"\n'] if topology else []
            replace_file(path, "\n".join([_HEAD, *declared, *map(_table, nodes)]).encode())
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror}.", code="nodes_not_written") from None
    return nodes


def _table(node: Node) -> str:
    values = node.model_dump(exclude={"name"}, exclude_none=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]  # a JSON string is a TOML string
    return "\n".join([f"[{node.name}]", *lines, ""])


def _invalid(what: str) -> ProfileError:
    hint = "Correct it, or move it away and add the nodes again with `sparkdash nodes add`."
    return ProfileError(what, code="nodes_invalid", hint=hint)
