"""Access of a copy to nodes: ssh connections of its own, over the fast link where sshd answers there.

Owns: the choice of the address, and which of ssh's complaints need a person. Must not know what is copied.

A connection of its own for each stream: calls and logs share one, whose cipher runs on one core.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from sparkdash.domain.node import Node
from sparkdash.errors import HostError
from sparkdash.host.runtime import node_unknown
from sparkdash.nodes import node_file, ssh_command, ssh_errors, ssh_folder

PROBE_S = 2.0
PROBED_FOR_S = 30.0
"""Seconds for which the choice of an address holds."""


def registered_node(name: str) -> Node:
    """Return the node of the registry. Raises HostError: node_unknown; ProfileError: nodes_invalid."""
    for node in node_file.read_nodes(node_file.nodes_file()):
        if node.name == name:
            return node
    raise node_unknown(name)


class SshAccess:
    """Command lines towards nodes. `fast_address` returns a node's address on the fast link, None while unknown."""

    def __init__(
        self, fast_address: Callable[[str], str | None], find: Callable[[str], Node] = registered_node
    ) -> None:
        self._fast_address = fast_address
        self._find = find
        self._chosen: dict[str, tuple[float, str | None]] = {}

    def command(self, node: str, argv: Sequence[str]) -> Sequence[str]:
        """Return the local argv that runs `argv` on the node over a connection of its own. Raises HostError."""
        found = self._find(node)
        known_hosts = ssh_folder.write_known_hosts(ssh_folder.socket_folder(), found)
        return ssh_command.transfer(found, known_hosts, ssh_command.remote(argv), self.address(node))

    def address(self, node: str) -> str | None:
        """Return the address on the fast link, where sshd answers there; None: the address for ssh is used.

        Blocks for up to PROBE_S.
        """
        at, chosen = self._chosen.get(node, (float("-inf"), None))
        if time.monotonic() - at > PROBED_FOR_S:
            found = self._find(node)
            wanted = found.address or self._fast_address(node)
            chosen = wanted if wanted and _answers(wanted, found.port) else None
            self._chosen[node] = (time.monotonic(), chosen)
        return chosen

    def hf_home(self, node: str) -> str:
        """Return the node's Hugging Face cache, which may begin with `~`."""
        return self._find(node).hf_home or "~/.cache/huggingface"

    def refusal(self, node: str, words: str) -> HostError | None:
        """Return the error for a node that may not be used, by ssh's complaint; None for a link that broke."""
        error = ssh_errors.connection_error(self._find(node), words)
        return error if error.code in ssh_errors.REFUSALS else None


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), PROBE_S):
            return True
    except OSError:
        return False
