"""A real sshd on this machine's loopback, with a host key of its own, for connections to one node."""

import getpass
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sparkdash.domain.node import Node

SSHD = "/usr/sbin/sshd"
HEARD = "Server listening on"


class LocalSshd:
    """sshd that lets in one key, which a fresh ssh-agent holds; `variables` lead ssh to that agent."""

    def __init__(self, folder: Path) -> None:
        assert Path(SSHD).exists(), "run tests/two_hosts/setup.sh"
        self.folder = folder
        self.port = free_port()
        self.target = f"{getpass.getuser()}@127.0.0.1"
        self.log = folder / "sshd.log"
        self.extra = ""
        """Further lines of its configuration, for the next start."""
        self._process: subprocess.Popen[bytes] | None = None
        self.new_host_key()
        _keygen(folder / "user")
        shutil.copy(folder / "user.pub", folder / "authorized_keys")
        agent = subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(folder / "agent")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._agent = agent
        until(lambda: (folder / "agent").exists())
        self.variables = {"SSH_AUTH_SOCK": str(folder / "agent")}
        subprocess.run(
            ["ssh-add", "-q", str(folder / "user")], env={**os.environ, **self.variables}, check=True, timeout=20
        )

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host.pub").read_text().split()[:2])

    @property
    def node(self) -> Node:
        return Node(name="spark2", ssh=self.target, port=self.port, host_key=self.host_key)

    def new_host_key(self) -> None:
        """Make another host key, for the next start."""
        for each in ("host", "host.pub"):
            (self.folder / each).unlink(missing_ok=True)
        _keygen(self.folder / "host")

    def start(self) -> "LocalSshd":
        config = self.folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder / 'host'}\nPidFile none\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\nPermitRootLogin yes\n"
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}\nLogLevel VERBOSE\n"
            # bash reads no ~/.bashrc below another shell: this machine's own may write to stderr (pyenv, two at once).
            f"SetEnv SHLVL=1\n{self.extra}\n"
        )
        command = [SSHD, "-D", "-e", "-f", str(config)]
        if os.geteuid() == 0:  # sshd refuses a locked root ("!"), as many images have it
            shadow = self.folder / "shadow"
            shadow.write_text("root:*:19000:0:99999:7:::\n")
            shadow.chmod(0o600)
            Path("/run/sshd").mkdir(exist_ok=True, mode=0o755)
            inside = f"mount --bind {shlex.quote(str(shadow))} /etc/shadow && exec {shlex.join(command)}"
            command = ["unshare", "--mount", "sh", "-c", inside]
        began = self.connections("")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        until(lambda: self.connections("") > began, what=lambda: self.log.read_text())
        return self

    def stop(self) -> None:
        """Kill it with all its sessions, as the end of the box does."""
        if self._process is None:
            return
        for pid in (*_below(self._process.pid), self._process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(timeout=20)
        self._process = None

    def close(self) -> None:
        self.stop()
        self._agent.kill()
        self._agent.wait(timeout=20)

    def connections(self, words: str = "Accepted publickey") -> int:
        """Number of its log's lines with these words: logins, or starts without words."""
        text = self.log.read_text() if self.log.exists() else ""
        return len(re.findall(words or HEARD, text))


def until(
    holds: Callable[[], object], timeout: float = 20, what: Callable[[], str] = lambda: "it did not come"
) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, what()
        threading.Event().wait(0.02)


def _below(pid: int) -> list[int]:
    """Descendants of a process, the deepest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for child in map(int, task.read_text().split()):
                found += [*_below(child), child]
    return found


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=20)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
