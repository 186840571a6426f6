"""Two hosts on this machine, each with its own network, processes, podman and sshd; and a daemon on one of them.

Owns: tests/two_hosts/hosts.sh as an object, the faults that tests cause, and a daemon that runs on host a. Memory, CPU
and the kernel are one machine's: both hosts show the same figures unless a test lays others over /proc/meminfo.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daemons import Daemon
from own_run import engine_ports

HERE = Path(__file__).parents[1] / "two_hosts"
SSHD = "/usr/sbin/sshd"
LEFT_OUT = ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
"""Variables of this machine that mean nothing on a host."""


class TwoHosts:
    """Hosts a, b and whatever more `names` has; `c` is the switch between them, where a client may sit.

    In a `ring` cables replace the switch, and `address` is the one by which host a reaches each of four.
    """

    image = "localhost/sparkdash-test-hostfs:1"
    """Empty image on both: with the host's system folders mounted read-only, any host program runs in it."""

    def __init__(self, folder: Path, net: str, names: Sequence[str] = ("a", "b"), *, ring: bool = False) -> None:
        self.folder, self.net, self.names = folder, net, names
        self.address = {name: f"{net}.{number}" for number, name in enumerate(names, 1)} | {"c": f"{net}.254"}
        if ring:
            ends = ("101.1", "101.2", "102.2", "104.1")
            self.address = {name: f"192.168.{end}" for name, end in zip(names, ends, strict=True)}
        python = Path(os.path.realpath(sys.executable)).parents[1]
        kept = [Path(__file__).parents[2], python, Path.home() / ".cache" / "sparkdash-tests", Path(sys.prefix)]
        below_home = [path.resolve() for path in kept if path.exists() and path.resolve().is_relative_to("/root")]
        keep = [path for path in below_home if not any(path != one and path.is_relative_to(one) for one in below_home)]
        self._env = {
            **os.environ,
            "DIR": str(folder),
            "NET": net,
            "HOSTS": " ".join(names),
            "KEEP": " ".join(map(str, dict.fromkeys(keep))),
            "RING": "1" if ring else "",
        }

    def up(self) -> None:
        self._script("down")
        self._script("up")
        for host in self.names:
            context = self.folder / host / "home" / "image"
            context.mkdir()
            (context / "Containerfile").write_text("FROM scratch\nCOPY Containerfile /Containerfile\n")
            self.run(host, "podman", "build", "-q", "--timestamp", "0", "-t", self.image, "/root/image")

    def down(self) -> None:
        """End every process of both, and remove all that they wrote."""
        self._script("down")

    def words(self, host: str, *argv: str, env: Mapping[str, str] | None = None) -> list[str]:
        pid = (self.folder / host / "pid").read_text().strip()
        variables = {
            "HOME": "/root", "USER": "root", "LANG": "C.UTF-8", "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(env or {}),
        }  # fmt: skip
        inside = ["nsenter", "-t", pid, "-m", "-u", "-i", "-n", "-p", "--wd=/", "env", "-i"]
        return [*inside, *(f"{key}={value}" for key, value in variables.items()), *argv]

    def run(
        self, host: str, *argv: str, check: bool = True, timeout: float = 60, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.words(host, *argv), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert not check or done.returncode == 0, f"{host}: {argv} ended with {done.returncode}: {done.stderr}"
        return done

    def containers(self, host: str) -> dict[str, str]:
        listed = self.run(host, "podman", "ps", "--all", "--format", "{{.Names}} {{.State}}").stdout
        return dict(line.split(" ", 1) for line in listed.splitlines())

    def link(self, *, up: bool) -> None:
        """Plug or pull the cable of b: both ends see the carrier go."""
        self.run("c", "ip", "link", "set", "vb", "up" if up else "down")

    def add_fast_link(self) -> str:
        """Connect both hosts by a second network, eth1, as two Sparks by their QSFP cable; its first three bytes."""
        net = f"192.168.{int(self.net.split('.')[2])}"
        self.add_network("eth1", net, ("a", "b"))
        return net

    def add_network(self, interface: str, net: str, names: Sequence[str]) -> None:
        """Connect hosts by a network behind a switch of its own."""
        self.run("c", "ip", "link", "add", "br1", "type", "bridge")
        self.run("c", "ip", "link", "set", "br1", "up")
        for number, host in enumerate(names, 1):
            self.run("c", "ip", "link", "add", f"w{host}", "type", "veth", "peer", "name", f"q{host}")
            pids = {each: (self.folder / each / "pid").read_text().strip() for each in (host, "c")}
            move = ["nsenter", "-t", pids["c"], "-n", "ip", "link", "set", f"q{host}", "netns", pids[host]]
            subprocess.run(move, check=True)
            self.run(host, "ip", "link", "set", f"q{host}", "name", interface)
            self.run(host, "ip", "addr", "add", f"{net}.{number}/24", "dev", interface)
            self.run(host, "ip", "link", "set", interface, "up")
            self.run("c", "ip", "link", "set", f"w{host}", "master", "br1", "up")

    def remove_fast_link(self) -> None:
        """Take the second network away."""
        for name in ("wa", "wb", "br1"):
            self.run("c", "ip", "link", "delete", name, check=False)

    @contextlib.contextmanager
    def program(self, host: str, name: str, text: str) -> Iterator[None]:
        """Lay a script over a program of /usr/bin on a host; the program itself is /run/real-NAME meanwhile."""
        script, real = self.folder / host / f"fake-{name}", os.path.realpath(f"/usr/bin/{name}")
        script.write_text(text)
        script.chmod(0o755)
        self.run(host, "cp", "-a", real, f"/run/real-{name}")
        self.run(host, "mount", "--bind", str(script), real)
        try:
            yield
        finally:
            self.run(host, "umount", "--lazy", real)

    @contextlib.contextmanager
    def lossy_link(self, host: str, interface: str) -> Iterator[None]:
        """Lose every ninth packet that comes in there, of each of several pings; the kernel need not have netem."""
        rule = f"INPUT -i {interface} -m statistic --mode nth --every 9 --packet 0 -j DROP".split()
        self.run(host, "iptables", "-A", *rule)
        try:
            yield
        finally:
            self.run(host, "iptables", "-D", *rule)

    def slow_link(self, bytes_s: int | None) -> None:
        """Let b receive only so many bytes a second; None: as many as come."""
        self.run("c", "tc", "qdisc", "del", "dev", "vb", "root", check=False)
        if bytes_s is not None:
            rate = ("rate", f"{bytes_s}bps", "burst", "2mb", "latency", "50ms")
            self.run("c", "tc", "qdisc", "add", "dev", "vb", "root", "tbf", *rate)

    def sshd(self, *, up: bool, host: str = "b") -> None:
        """Start sshd again, or kill it with all its sessions."""
        if up:
            config, log = self.folder / host / "sshd_config", self.folder / host / "log" / "sshd"
            self.run(host, SSHD, "-f", str(config), "-E", str(log))
            self._await(host, "ss -Hltn sport = :22 | grep -q .")
        else:
            self.run(host, "pkill", "-KILL", "-x", "sshd")
            self._await(host, "! pgrep -x sshd && ! ss -Hltn sport = :22 | grep -q .")  # else a new one cannot listen

    def _await(self, host: str, condition: str) -> None:
        """Wait until a shell command succeeds on the host."""
        self.run(
            host, "sh", "-c", f"for _ in $(seq 600); do {{ {condition}; }} >/dev/null && exit; sleep 0.05; done; exit 1"
        )

    def new_host_key(self, host: str = "b") -> None:
        """Give the host another key, as a reinstalled box or somebody in between has."""
        key = self.folder / host / "ssh_host"
        key.unlink()
        key.with_suffix(".pub").unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self.sshd(up=False, host=host)
        self.sshd(up=True, host=host)

    def clear_containers(self) -> None:
        for host in self.names:
            self.clear_containers_of(host)

    def clear_containers_of(self, host: str) -> None:
        self.run(host, "podman", "rm", "--all", "--force", "--time", "0", check=False)

    def _script(self, *words: str) -> None:
        done = subprocess.run(
            ["bash", str(HERE / "hosts.sh"), *words], env=self._env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"hosts.sh {' '.join(words)}: {done.stdout}{done.stderr}"


class HostDaemon(Daemon):
    """`sparkdash serve` on a host. Its API is reached from outside through a relay to its unix socket."""

    def __init__(
        self, root: Path, hosts: TwoHosts, *, runtime: str = "podman", host: str = "a", **settings: Any
    ) -> None:
        self.host = host
        super().__init__(root, runtime=runtime, engine_ports=engine_ports(), **settings)
        self.hosts = hosts
        self._variables = {key: value for key, value in self.env.items() if key not in LEFT_OUT} | {"HOME": "/root"}
        self._variables.pop("PATH", None)
        self._variables["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self._variables["CONTAINERS_CONF"] = str(hosts.folder / "containers.conf")
        self._relay: _Relay | None = None

    def words(self, *argv: str) -> list[str]:
        return self.hosts.words(self.host, sys.executable, *argv, env=self._variables)

    def start(self, *program: str) -> HostDaemon:
        """Start the daemon on its host and wait until its log says that it serves."""
        super().start(*program)
        if self._relay is None:
            (path,) = (self.root / "runtime").rglob("*.sock")
            self._relay = _Relay(path)
        self.url = f"http://127.0.0.1:{self._relay.port}"
        return self

    @property
    def pid(self) -> int:
        return int(self.state()["daemon"]["pid"])

    def spawn(self, words: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(self.words(*words), stderr=subprocess.PIPE, text=True, start_new_session=True)

    def signal(self, number: int) -> None:
        self.hosts.run(self.host, "kill", f"-{number}", str(self.pid))

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end()
        if self._relay is not None:
            self._relay.close()

    def sparkdash(self, *argv: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        words = self.words("-m", "sparkdash", *argv)
        return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)

    def containers(self) -> list[str]:
        return list(self.hosts.containers(self.host))

    def ready_nodes(self) -> dict[str, list[str]]:
        """Nodes of each engine that is ready."""
        engines = self.state()["engines"]
        return {name: engine["nodes"] for name, engine in engines.items() if engine["state"] == "ready"}

    def add_node(self, name: str = "spark-b") -> None:
        done = self.sparkdash("nodes", "add", name, "--ssh", f"root@{self.hosts.address['b']}", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr

    def until_state(self, holds: Callable[[dict[str, Any]], Any], timeout: float = 60) -> dict[str, Any]:
        """Ask again and again, also while the daemon has no event to tell."""
        deadline = time.monotonic() + timeout
        while not holds(state := self.state()):
            assert time.monotonic() < deadline, f"it did not come within {timeout:g} s: {json.dumps(state)[:4000]}"
            threading.Event().wait(0.1)
        return state


class _Relay:
    """A TCP port of this machine that leads to a unix socket."""

    def __init__(self, path: Path) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.socket(socket.AF_UNIX) as there:
                    try:
                        there.connect(str(path))
                    except OSError:
                        return
                    other = threading.Thread(target=_pump, args=(there, self.request), daemon=True)
                    other.start()
                    _pump(self.request, there)
                    other.join()

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True
            request_queue_size = 64

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for one, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            one.shutdown(how)


def unique_net(worker: Sequence[str] | str) -> str:
    """First three bytes of addresses that no other set of this run has."""
    number = int(re.sub(r"\D", "", str(worker)) or 0)
    return f"10.{90 + number}.{os.getpid() % 250}"
