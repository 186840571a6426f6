"""Failures of ssh as errors that say what to do.

ssh ends with 255 for every failure of its own. A remote command's own 255 is marked by `ssh_command.remote`. Pure.
"""

import re

from sparkdash.domain.node import Node
from sparkdash.errors import HostError
from sparkdash.nodes.ssh.ssh_command import fingerprint

FAILED = 255

UNREACHABLE = "node_unreachable"
KEY_CHANGED = "host_key_changed"
KEY_UNKNOWN = "host_key_unknown"
LOGIN_REFUSED = "node_login_refused"
TIMEOUT = "node_timeout"
REFUSALS = frozenset({KEY_CHANGED, KEY_UNKNOWN, LOGIN_REFUSED})
"""Codes of a node that answers and may not be used."""

_OFFERED = re.compile(r"^(?:SHA256:)?(SHA256:[A-Za-z0-9+/]{43})\.?$|\b(SHA256:[A-Za-z0-9+/]{43})", re.MULTILINE)
_CHANGED = ("REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key for ")
_UNKNOWN = ("host key is known for", "Host key verification failed", "no matching host key type")
_REFUSED = ("Permission denied", "Too many authentication failures", "not allowed because")
_WORDS_LIMIT = 300
NO_WORDS = "ssh said nothing"
NO_ANSWER = "it has stopped answering"
"""Finding when ssh gives a connection up after its keepalives, which it says at a log level not asked for."""


def connection_error(node: Node, stderr: str) -> HostError:
    if _CHANGED[0] in stderr:
        offered = _OFFERED.search(stderr)
        found = f"it offers {offered[1] or offered[2]}" if offered else "it offers another one"
        return HostError(
            f"The host key of {node.name} ({node.ssh}) has changed: pinned is {fingerprint(node.host_key)}, {found}.",
            code=KEY_CHANGED,
            hint="Another machine may answer in its place. " + _accept_hint(node),
        )
    if any(words in stderr for words in _UNKNOWN):
        return HostError(
            f"{node.name} ({node.ssh}) offers no host key of the pinned kind, {node.host_key.split()[0]}.",
            code=KEY_UNKNOWN,
            hint=_accept_hint(node),
        )
    if any(words in stderr for words in _REFUSED):
        port = "" if node.port == 22 else f"-p {node.port} "
        return HostError(
            f"{node.name} ({node.ssh}) refuses the login: {last_words(stderr).removeprefix(f'{node.ssh}: ')}.",
            code=LOGIN_REFUSED,
            hint=f"Let it know your key once: `ssh-copy-id {port}{node.ssh}`. A key with a passphrase needs ssh-agent.",
        )
    return unreachable(node, last_words(stderr))


def unreachable(node: Node, words: str, *, registered: bool = True) -> HostError:
    """Make the error for a box that gives no answer; one that is `registered` is tried again by itself."""
    look = f"See whether it is on and its cable is in: `ssh {node.ssh} true`."
    if "Connection refused" in words:
        look = f"It answers, and no sshd does on port {node.port}: `sudo systemctl start ssh` on it."
    if "Could not resolve hostname" in words:
        look = "This box knows no address of that name: correct it, or give the IP address."
    return HostError(
        f"{node.name} ({node.ssh}) cannot be reached: {words}.",
        code=UNREACHABLE,
        hint=look + (" sparkdash tries again by itself." if registered else ""),
    )


def too_slow(node: Node, what: str, seconds: float) -> HostError:
    return HostError(
        f"`{what}` on {node.name} gave no answer for {seconds:.0f} s.",
        code=TIMEOUT,
        hint=f"See whether `ssh {node.ssh} true` answers.",
    )


def ssh_missing(words: str) -> HostError:
    return HostError(
        f"ssh cannot be run on this box: {words}.",
        code="ssh_missing",
        hint="Install it: `sudo apt-get install openssh-client`.",
    )


def _accept_hint(node: Node) -> str:
    return (
        "If you know why (a new installation), accept it deliberately: "
        f"`sparkdash nodes remove {node.name}`, then `sparkdash nodes add {node.name} --ssh {node.ssh}`."
    )


def last_words(stderr: str) -> str:
    """Shorten ssh's complaint to its last line that names a reason."""
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    plain = [line for line in said if not line.startswith(("mux_client", "Control socket", "@"))] or said
    text = (plain[-1] if plain else NO_WORDS).rstrip(".").removeprefix("ssh: ")
    return text if len(text) <= _WORDS_LIMIT else text[:_WORDS_LIMIT] + "…"
