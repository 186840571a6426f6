"""Two hosts on this machine, each with its own network, processes, podman and sshd; a daemon, a small engine on both.

Owns: tests/two_hosts/hosts.sh as an object, the faults that tests cause, and a daemon that runs on host a. Memory, CPU
and the kernel are one machine's: both hosts show the same figures unless a test lays others over /proc/meminfo.
"""

import contextlib
import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import own_run
from daemons import Daemon
from own_run import engine_ports
from vllm_cache import tiny_vllm

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

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, prefix: str, number: str = "", names: Sequence[str] = ("a", "b"), *, ring: bool = False
    ) -> "Iterator[TwoHosts]":
        """Hosts for the length of the block, in a network of this worker's whose number begins with `number`."""
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ[own_run.VARIABLE]))
        worker = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "0"))
        made = cls(folder, f"10.{90 + int(number + worker)}.{os.getpid() % 250}", names, ring=ring)
        try:
            made.up()
            yield made
        finally:
            made._script("down")

    def up(self) -> None:
        self._script("down")
        self._script("up")
        for host in self.names:
            context = self.folder / host / "home" / "image"
            context.mkdir()
            (context / "Containerfile").write_text("FROM scratch\nCOPY Containerfile /Containerfile\n")
            self.run(host, "podman", "build", "-q", "--timestamp", "0", "-t", self.image, "/root/image")

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

    def start(self, *program: str) -> "HostDaemon":
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


NAME = "pair"
HEAD, WORKER = "sparkdash-pair", "sparkdash-pair-worker1"
GATES = "/root/gates"
"""Folder of each host whose files hold the engine up; see pair_engine."""
RANK = "^(VLLM::Worker|ray::RayWorkerProc)|spawn_main"
"""Command line of a process that computes a rank.

vLLM's own title is lost, and Python's stays, where the first variable of the container was set anew before
setproctitle looked for the title's place: torch does so with TORCHINDUCTOR_CACHE_DIR, and podman's order is random.
"""
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc")


def profile(nodes: int = 2, name: str = NAME, **more: Any) -> dict[str, Any]:
    base = str(Path(os.path.realpath(sys.executable)).parents[1])
    places = dict.fromkeys((*SYSTEM, base, str(HERE.parents[1])))
    args = {"tensor-parallel-size": nodes} if nodes > 1 else {}
    return {
        "profile": name,
        "engine": "vllm",
        "image": TwoHosts.image,
        "models": {"target": {"path": str(HERE / "shim")}},
        "gpu": False,
        "command": [os.path.realpath(sys.executable), str(HERE / "pair_engine.py")],
        "mounts": [
            *({"source": place, "target": place} for place in places),
            {"source": GATES, "target": "/gates", "read_only": False},
        ],
        "memory": {"weights_gib": 0.05, "kv_gib": 0.05, "overhead_gib": 0.05, "source": "measured"},
        "nodes": nodes,
        "args": args,
        **more,
    }


def duo(hosts: TwoHosts, engine: Path, ray: Path) -> dict[str, Any]:
    """Profile `duo` by native launch, with its variant `ray`."""
    python = Path(os.path.realpath(engine / "venv/bin/python")).parents[1]
    places = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", python, engine, ray, HERE / "shim")
    mounts = [{"source": str(place), "target": str(place)} for place in dict.fromkeys(places)]
    made = tiny_vllm(engine, "duo", hosts.image, mounts)
    made["env"]["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] = "100"
    made["args"]["tensor-parallel-size"] = 2
    return made | {
        "nodes": 2,
        "tmpfs": ["/scratch", "/tmp"],
        "memory": {"weights_gib": 0.1, "kv_gib": 1, "overhead_gib": 2, "source": "measured: 2.1-3.8 GiB a node"},
        "variants": {
            "ray": {
                "args": {"distributed-executor-backend": "ray"},
                "env": {
                    "PATH": f"{ray}/bin:/usr/bin:/bin",
                    "PYTHONPATH": f"{ray}/lib:{HERE / 'shim'}",
                    "VLLM_CPU_RAY": "1",
                },
            }
        },
    }


@contextmanager
def shut(hosts: TwoHosts, gate: str, *on: str) -> Iterator[None]:
    """Hold the engine up at a gate on these hosts; see pair_engine."""
    files = [hosts.folder / host / "home" / "gates" / gate for host in on]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    try:
        yield
    finally:
        for file in files:
            file.unlink()


def begin(daemon: HostDaemon, name: str = NAME) -> None:
    """Begin to start the engine, and do not wait for it."""
    deadline = time.monotonic() + 30
    while (told := daemon.call("POST", "/api/use", {"profile": name}, 60))[0] >= 300:
        assert time.monotonic() < deadline, told
        time.sleep(0.2)


def until_engine(daemon: HostDaemon, *states: str, name: str = NAME, limit_s: float = 90) -> dict[str, Any]:
    """Wait until the engine is in one of these states; what is told of it."""
    state = daemon.until_state(lambda state: state["engines"].get(name, {}).get("state") in states, limit_s)
    return dict(state["engines"][name])


def until_reachable(daemon: HostDaemon, *boxes: str) -> None:
    """Wait until these boxes answer, or spark2."""
    daemon.until_state(
        lambda state: {state["nodes"].get(box, {}).get("status") for box in boxes or ("spark2",)} == {"reachable"}
    )


@contextmanager
def swapping_daemon(root: Path, hosts: TwoHosts, **settings: Any) -> Iterator[HostDaemon]:
    """A daemon on host a, not started, of one engine at a time on each host; at the end nothing of it is left."""
    daemon = HostDaemon(root, hosts, reserve_gib=1.0, guard="off", side_by_side=False, min_dwell_s=0, **settings)
    try:
        yield daemon
    finally:
        daemon.close()
        hosts.clear_containers()


def up(daemon: HostDaemon, name: str = NAME) -> None:
    begin(daemon, name)
    engine = until_engine(daemon, "ready", "failed", name=name)
    assert engine["state"] == "ready", (engine, daemon.state()["swaps"], daemon.state()["notices"][:5])


def failure_of(daemon: HostDaemon, name: str = NAME) -> dict[str, Any]:
    """Wait until the engine has failed; the failure."""
    return dict(until_engine(daemon, "failed", name=name)["failure"])


def until_gone(hosts: TwoHosts, *on: str, limit_s: float = 90) -> None:
    """Wait until these hosts have no container. A node that was silent is tried every 15 s."""
    deadline = time.monotonic() + limit_s
    while left := {host: found for host in on if (found := hosts.containers(host))}:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def plug_in(hosts: TwoHosts, daemon: HostDaemon) -> None:
    """Plug the cable in again and have the silent node tried now; by itself the daemon does so within 15 s."""
    hosts.link(up=True)
    daemon.post("/api/reload", {})


def notices(daemon: HostDaemon) -> str:
    return "\n".join(each["text"] for each in daemon.state()["notices"])


def registry(hosts: TwoHosts, boxes: Mapping[str, str]) -> str:
    """Text of nodes.toml with these hosts, by the name of their box."""
    keys = {host: (hosts.folder / host / "ssh_host.pub").read_text().split() for host in boxes.values()}
    return "".join(
        f'[{box}]\nssh = "root@{hosts.address[host]}"\nhost_key = "{keys[host][0]} {keys[host][1]}"\n'
        for box, host in boxes.items()
    )


def open_chat(
    daemon: HostDaemon, model: str, *, timeout: float = 100, session: str | None = None, **more: Any
) -> HTTPResponse:
    """Open a chat through the gateway, which brings the profile up; an answer of four tokens unless told otherwise."""
    body = {"model": model, "messages": [{"role": "user", "content": "go"}], "max_tokens": 4, **more}
    headers = {"Content-Type": "application/json", **({"X-Session-ID": session} if session else {})}
    request = urllib.request.Request(f"{daemon.url}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from None


def answer(daemon: HostDaemon, model: str) -> str:
    """Ask for four tokens; return why the answer ended."""
    with open_chat(daemon, model) as reply:
        return str(json.load(reply)["choices"][0]["finish_reason"])


def daemon_that_knows_b(
    hosts: TwoHosts, made: HostDaemon, profile_more: dict[str, Any] | None = None, **node: str
) -> HostDaemon:
    """Start a daemon of host a with host b in its registry; `node`: more lines of its entry."""
    more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in node.items())
    (made.root / "config" / "nodes.toml").write_text(registry(hosts, {"spark2": "b"}) + more)
    (made.profiles / f"{NAME}.yaml").write_text(json.dumps(profile(**(profile_more or {}))))
    made.start()
    until_reachable(made)
    return made
