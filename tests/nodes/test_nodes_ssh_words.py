"""Command lines of ssh, and the meaning of ssh's complaints, as OpenSSH 9.2 wrote them."""

import itertools
import subprocess
from pathlib import Path

import pytest

from sparkdash.domain.node import Node
from sparkdash.nodes.ssh import connection, ssh_command, ssh_errors
from sparkdash.nodes.ssh.ssh_command import fingerprint

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJWeGxv0lUQU1ZFNbPh1QJryx/l3ynAdohlAkSqLfmaI"
PRINT = "SHA256:atW8p3qeyrw3CK0ncdcLDGs0xzBg+cmo36XrIXbJBGw"
NODE = Node(name="spark2", ssh="lab@spark2", port=2222, host_key=KEY)
CHANGED = f"""\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Someone could be eavesdropping on you right now (man-in-the-middle attack)!
It is also possible that a host key has just been changed.
The fingerprint for the ED25519 key sent by the remote host is
{PRINT}.
Please contact your system administrator.
Host key for spark2 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(("said", "code", "words"), [
    (CHANGED, "host_key_changed", f"it offers {PRINT}"),
    ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n", "host_key_changed", "it offers another one"),
    ("No ED25519 host key is known for spark2 and you have requested strict checking.\nHost key verification failed.\n",
     "host_key_unknown", "no host key of the pinned kind, ssh-ed25519"),
    ("lab@spark2: Permission denied (publickey).\n", "node_login_refused", "Permission denied (publickey)."),
    ("Received disconnect from 10.0.0.2: 2: Too many authentication failures\n", "node_login_refused", "Too many"),
    ("ssh: connect to host spark2 port 22: Connection refused\n", "node_unreachable", "Connection refused."),
    ("ssh: connect to host spark2 port 22: Connection timed out\n", "node_unreachable", "Connection timed out."),
    ("mux_client_read_packet: read header failed: Broken pipe\nTimeout, server spark2 not responding.\n"
     "Control socket connect(/run/x): gone\n", "node_unreachable", "Timeout, server spark2 not responding."),
    ("ssh: Could not resolve hostname spark2: Name or service not known\n", "node_unreachable", "Could not resolve"),
    ("", "node_unreachable", "ssh said nothing."),
    ("x" * 5000, "node_unreachable", "x…."),
])  # fmt: skip
def test_a_complaint_of_ssh_becomes_an_error_with_a_fix(said: str, code: str, words: str) -> None:
    found = ssh_errors.connection_error(NODE, said)
    assert found.code == code
    assert words in found.message
    assert found.hint
    assert len(found.message) < 500


def test_a_changed_key_says_what_was_pinned_and_how_to_accept_it() -> None:
    found = ssh_errors.connection_error(NODE, CHANGED)
    assert f"pinned is {fingerprint(KEY)}" in found.message
    assert "`sparkdash nodes remove spark2`, then `sparkdash nodes add spark2 --ssh lab@spark2`" in str(found.hint)


def test_only_a_registered_node_is_said_to_be_tried_again() -> None:
    assert "tries again" in str(ssh_errors.unreachable(NODE, "gone").hint)
    unknown = ssh_errors.unreachable(NODE, "Could not resolve hostname x: Name or service not known")
    assert "give the IP address" in str(unknown.hint)
    assert "cable" not in str(unknown.hint), "a name without an address is no matter of the cable"
    assert "tries again" not in str(ssh_errors.unreachable(NODE, "gone", registered=False).hint)


def test_a_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(KEY + "\n")
    done = subprocess.run(
        ["ssh-keygen", "-lf", str(tmp_path / "key.pub")], capture_output=True, text=True, check=True, timeout=20
    )
    assert fingerprint(KEY) == done.stdout.split()[1] == PRINT


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 not*base64"])
def test_what_is_no_key_has_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match="is no host key"):
        fingerprint(text)


ALL = {
    "master": ssh_command.master(NODE, Path("/run/s"), Path("/run/k")),
    "call": ssh_command.call(NODE, Path("/run/s"), Path("/run/k"), "true"),
    "transfer": [*ssh_command.transfer(NODE, Path("/run/k")), "--", NODE.ssh, "true"],
}


@pytest.mark.parametrize("argv", ALL.values(), ids=ALL)
def test_every_connection_is_strict_about_the_key_asks_nothing_and_has_deadlines(argv: list[str]) -> None:
    options = {word for before, word in itertools.pairwise(argv) if before == "-o"}
    assert options >= {
        "BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null", 'UserKnownHostsFile="/run/k"',
        "HostKeyAlias=spark2", "UpdateHostKeys=no", "PasswordAuthentication=no", "ForwardAgent=no",
        "ConnectTimeout=3", "ServerAliveInterval=2", "ServerAliveCountMax=3",
    }  # fmt: skip
    assert argv[argv.index("--") + 1] == "lab@spark2"
    assert argv[argv.index("-p") + 1] == "2222"


def test_a_target_that_looks_like_an_option_stays_a_target() -> None:
    argv = ssh_command.call(NODE.replace(ssh="-oProxyCommand=x"), Path("/s"), Path("/k"), "true")
    assert argv[-3:] == ["--", "-oProxyCommand=x", "true"]


def test_a_variables_value_stands_in_no_command_line() -> None:
    line = ssh_command.remote_with_variables(["podman", "run"], ["HF_TOKEN"])
    assert "HF_TOKEN" in line
    assert ssh_command.variable_lines(["a\\b\nc"]) == b"a\\\\b\\nc\n"


def test_the_pinned_key_is_compared_under_the_nodes_name(tmp_path: Path) -> None:
    path = connection.write_known_hosts(tmp_path, NODE)
    assert path.read_text() == f"spark2 {KEY}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert connection.write_known_hosts(tmp_path, NODE) == path
    assert connection.write_known_hosts(tmp_path, NODE.replace(host_key="ssh-ed25519 BBBB")) != path


def test_a_long_runtime_folder_is_left_for_a_short_one_of_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.paths, "runtime_dir", lambda: tmp_path / ("x" * 80))
    folder = connection.socket_folder.__wrapped__()
    assert len(str(folder)) <= connection.LONGEST
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
