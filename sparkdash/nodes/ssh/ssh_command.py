"""Command lines of ssh: master connections, calls over them, forwarded ports.

The user's own ssh_config counts for what is not named here: host names, identity files, jump hosts. Host keys are
compared with a known_hosts file of ours alone, under the node's name, so that no other file can vouch for a box. Pure.
"""

import base64
import binascii
import hashlib
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from sparkdash.domain.node import Node

SSH = "ssh"
CONNECT_S = 3
ALIVE_S = 2
ALIVE_COUNT = 3
"""A connection is given up after ALIVE_COUNT keepalives, ALIVE_S apart, without an answer."""
READY = "sparkdash-ready"
"""Line that a master connection prints once it is made and the other box's shell runs."""

CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr"
"""Ciphers of transfers, the fastest first."""

OWN_255 = "sparkdash-exit-255"
"""Last line of standard error of a remote command that ended with 255 itself, as ssh does when it fails."""
_END = f"s=$?; [ $s != 255 ] || echo {OWN_255} >&2; exit $s"

_QUIET = ("LogLevel=ERROR", "BatchMode=yes", "RequestTTY=no", "EscapeChar=none", "PermitLocalCommand=no")
_PLAIN = ("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "RemoteCommand=none", "Compression=no")
_ALIVE = (
    f"ConnectTimeout={CONNECT_S}",
    "ConnectionAttempts=1",
    f"ServerAliveInterval={ALIVE_S}",
    f"ServerAliveCountMax={ALIVE_COUNT}",
)


def master(node: Node, socket: Path, known_hosts: Path) -> list[str]:
    """Make the connection that others share at `socket`; it prints READY and ends with its standard input."""
    options = (*_common(node, known_hosts), "ControlMaster=yes", f"ControlPath={socket}", "ControlPersist=no")
    return _ssh(node, options, remote(["sh", "-c", f"echo {READY}; exec cat"]))


def call(node: Node, socket: Path, known_hosts: Path, command: str) -> list[str]:
    """Run `command`, a line for the other box's shell, over the master at `socket`."""
    options = (*_common(node, known_hosts), "ControlMaster=no", f"ControlPath={socket}")
    return _ssh(node, options, command)


def transfer(node: Node, known_hosts: Path, address: str | None = None) -> list[str]:
    """Begin a connection of its own, for many bytes: `--`, the host and a command are to follow, or rsync adds them.

    `address`: where to connect in place of the usual. AES-GCM has instructions of its own on a Spark's cores as on x86:
    0.28 s of processor time per GB here, against 0.68 of ChaCha20, which ssh prefers.
    """
    ways = ("ProxyJump=none", "ProxyCommand=none", f"HostName={address}") if address else ()
    options = (*ways, *_common(node, known_hosts), f"Ciphers={CIPHERS}", "ControlMaster=no", "ControlPath=none")
    return [SSH, "-T", *_options(options), "-p", str(node.port)]


def forward(node: Node, socket: Path, port: int, remote_port: int) -> list[str]:
    """Have the master listen on 127.0.0.1:`port` and connect each client to the same address on the other box."""
    return _control(node, socket, "forward", "-L", _forwarded(port, remote_port))


def cancel_forward(node: Node, socket: Path, port: int, remote_port: int) -> list[str]:
    return _control(node, socket, "cancel", "-L", _forwarded(port, remote_port))


def first_sight(target: str, port: int, name: str, known_hosts: Path) -> list[str]:
    """Connect only as far as the host key, which ssh writes into `known_hosts` under `name`; nobody is logged in."""
    options = (
        *_QUIET, *_PLAIN, *_ALIVE, *_own_keys(name, known_hosts), "StrictHostKeyChecking=accept-new",
        "PreferredAuthentications=none", "PubkeyAuthentication=no", "ControlMaster=no", "ControlPath=none",
    )  # fmt: skip
    return [SSH, *_options(options), "-p", str(port), "--", target, "true"]


def remote(argv: Sequence[str]) -> str:
    """Write a command for the other box's login shell, whichever shell that is.

    A single command would take the shell's place, and ssh reports a death by a signal as 255, its own exit code for a
    lost connection. So `sh` stays, reports 128 plus the signal, and marks a 255 of the command itself.
    """
    return f"exec sh -c {shlex.quote(f'{shlex.join(argv)}; {_END}')}"


def remote_with_variables(argv: Sequence[str], names: Collection[str]) -> str:
    """Write a command that takes the values of these variables from its standard input first (`variable_lines`).

    A value never stands in a command line, which every user of either box could read.
    """
    reads = "".join(
        f"IFS= read -r {name}; {name}=$(printf '%bx' \"${name}\"); {name}=${{{name}%x}}; export {name}; "
        for name in names
    )
    return f"exec sh -c {shlex.quote(f'{reads}{shlex.join(argv)}; {_END}')}"


def remote_until_input_ends(argv: Sequence[str]) -> str:
    """Write a command that ends with its standard input, as when this side is killed; stderr goes to stdout.

    Without a terminal sshd leaves a command running whose connection is gone.
    """
    script = (
        f"exec 3<&0; {shlex.join(argv)} </dev/null 3<&- 2>&1 & c=$!; "
        "{ while read -r _ <&3; do :; done; kill $c; } >/dev/null 2>&1 & w=$!; "
        f"exec 3<&-; wait $c; s=$?; kill $w 2>/dev/null; (exit $s); {_END}"
    )
    return f"exec sh -c {shlex.quote(script)}"


def variable_lines(values: Sequence[str]) -> bytes:
    escaped = (value.replace("\\", "\\\\").replace("\n", "\\n") for value in values)
    return "".join(f"{value}\n" for value in escaped).encode()


def _common(node: Node, known_hosts: Path) -> tuple[str, ...]:
    keys = (*_own_keys(node.name, known_hosts), "StrictHostKeyChecking=yes")
    logins = ("PasswordAuthentication=no", "KbdInteractiveAuthentication=no", "NumberOfPasswordPrompts=0")
    return (*_QUIET, *_PLAIN, *_ALIVE, *keys, *logins)


def _own_keys(name: str, known_hosts: Path) -> tuple[str, ...]:
    return (
        f'UserKnownHostsFile="{known_hosts}"', "GlobalKnownHostsFile=/dev/null", "KnownHostsCommand=none",
        f"HostKeyAlias={name}", "CheckHostIP=no", "VerifyHostKeyDNS=no", "UpdateHostKeys=no", "HashKnownHosts=no",
        "NoHostAuthenticationForLocalhost=no",
    )  # fmt: skip


def _ssh(node: Node, options: Collection[str], command: str) -> list[str]:
    return [SSH, "-T", *_options(options), "-p", str(node.port), "--", node.ssh, command]


def _control(node: Node, socket: Path, order: str, *words: str) -> list[str]:
    return [SSH, "-o", f"ControlPath={socket}", "-O", order, *words, "-p", str(node.port), "--", node.ssh]


def _forwarded(port: int, remote_port: int) -> str:
    return f"127.0.0.1:{port}:127.0.0.1:{remote_port}"


def _options(options: Collection[str]) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def fingerprint(host_key: str) -> str:
    """Return `SHA256:` and 43 characters for a key as in known_hosts: `ssh-ed25519 AAAA…`. Raises ValueError."""
    _, _, data = host_key.partition(" ")
    try:
        raw = base64.b64decode(data.split(" ")[0], validate=True)
    except binascii.Error:
        raw = b""
    if not raw:
        raise ValueError(f"{host_key!r} is no host key: it must be its kind and its data, such as ssh-ed25519 AAAA…")
    return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
