"""Host key that a box shows at the first contact, asked for with ssh itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from sparkdash.domain.node import Node
from sparkdash.errors import HostError
from sparkdash.host.command import run_command
from sparkdash.nodes.ssh import ssh_command, ssh_errors

FIRST_SIGHT_S = 15.0
"""Deadline of the first contact; the name service and a jump host may be slow."""


class SshTarget(NamedTuple):
    """Address as ssh understands it with the user's ssh_config."""

    host: str
    port: int
    user: str


async def resolve(target: str) -> SshTarget:
    """Ask ssh what it takes this address for. Raises HostError: ssh_missing, ssh_address_wrong."""
    try:
        done = await run_command([ssh_command.SSH, "-G", "--", target], deadline_s=FIRST_SIGHT_S)
    except OSError as error:
        raise ssh_errors.ssh_missing(error.strerror or str(error)) from None
    if done.code:
        words = (done.err.strip().splitlines() or ["ssh does not understand it"])[-1]
        raise HostError(
            f"{target!r} is no address for ssh: {words}.", code="ssh_address_wrong", hint="Give HOST or USER@HOST."
        )
    found = dict(line.split(" ", 1) for line in done.out.splitlines() if " " in line)
    return SshTarget(found.get("hostname", target), int(found.get("port", "22")), found.get("user", ""))


async def ask_host_key(name: str, target: str, port: int) -> str:
    """Return the key that the box shows, as `ssh-ed25519 AAAA…`. Raises HostError: ssh_missing, node_unreachable."""
    with tempfile.TemporaryDirectory(prefix="sparkdash-") as folder:
        known = Path(folder) / "known_hosts"
        argv = ssh_command.first_sight(target, port, name, known)
        node = Node(name=name, ssh=target, port=port, host_key="")
        try:
            done = await run_command(argv, deadline_s=FIRST_SIGHT_S)
        except TimeoutError:
            raise ssh_errors.unreachable(node, f"no answer for {FIRST_SIGHT_S:.0f} s", registered=False) from None
        except OSError as error:
            raise ssh_errors.ssh_missing(error.strerror or str(error)) from None
        seen = known.read_text().split() if known.exists() else []
    if len(seen) < 3:
        raise ssh_errors.unreachable(node, ssh_errors.last_words(done.err), registered=False)
    return f"{seen[1]} {seen[2]}"
