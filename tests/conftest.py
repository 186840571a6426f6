"""What every test gets: a home of its own, no silent skips where CI forbids them, and a daemon on request."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import hypothesis
import programs
import pytest
import structlog
from xdist.scheduler import LoadScopeScheduling

from sparkdash import paths

hypothesis.settings.register_profile("sparkdash", deadline=None)
hypothesis.settings.load_profile("sparkdash")  # a busy box is no failure

FOLDERS = ("CONFIG", "STATE", "RUNTIME")
SLOW = ("tests/real/", "tests/e2e/", "tests/podman/", "tests/faults/", "tests/bench/", "tests/tui/", "tests/cli/")
"""Rooms with long files, most of which wait for real programs."""
APART = ("tests/faults/test_faults_start.py", "tests/faults/test_faults_stop.py")
"""Long ones, where each test makes all that it needs."""


NOBODY = "1"
"""A port on which nothing is served."""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings, state and socket in the test's own folder, never the owner's; nor is a daemon asked that runs on this box."""
    for name, folder in _folders(tmp_path).items():
        monkeypatch.setenv(name, folder)
    for name in ("HOST", "RUNTIME", "URL"):
        monkeypatch.delenv(f"SPARKDASH_{name}", raising=False)
    monkeypatch.setenv("SPARKDASH_PORT", NOBODY)
    return tmp_path


def _folders(root: Path) -> dict[str, str]:
    for name in FOLDERS:
        (root / name.lower()).mkdir(exist_ok=True, parents=True)
    return {f"SPARKDASH_{name}_DIR": str(root / name.lower()) for name in FOLDERS}


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command that sets the log up writes to what is its stderr now; the next test has another."""
    yield
    structlog.reset_defaults()


def pytest_sessionstart() -> None:
    """Programs that the tests start can be interrupted, also where the shell has told this one (`make test &`) to ignore it:
    children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is loaded for the tests stays to the end: no search for garbage walks it, neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that the last files are short ones."""
    items.sort(key=lambda item: not item.nodeid.startswith(SLOW))


class Groups(LoadScopeScheduling):
    """A file's tests stay together, for what they share; where they share nothing any worker takes any of them."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(APART) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    """Whatever --dist says."""
    return Groups(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """On CI a skipped test is a failed one: what was not run was not seen to work.

    A report parses source code. In CPython 3.11.7 (gh-106905) that raises SystemError, which ends the whole run, when
    the garbage collector calls code that parses as well: a destructor that warns with a traceback, for instance.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        outcome = yield
    finally:
        if collects:
            gc.enable()
    report = outcome.get_result()
    if report.skipped and os.environ.get("SPARKDASH_FORBID_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and SPARKDASH_FORBID_SKIPS is set: {report.longrepr}"


def engine_ports() -> tuple[int, int]:
    """A range of this worker's own, and most likely not another run's; below 32768 no client's port is met."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    first = 20_000 + (worker % 8 * 15 + os.getpid() % 15) * 100
    return first, first + 99


@pytest.fixture(scope="session")
def ports() -> tuple[int, int]:
    """`engine_ports()`, for those who start no daemon."""
    return engine_ports()


_walked = itertools.count()


@pytest.fixture
def unused_tcp_port(ports: tuple[int, int]) -> int:
    """One of this worker's own, instead of the kernel's choice: that one may be another process's until it is used."""
    first, last = ports
    for _ in range(first, last + 1):
        port = last - next(_walked) % (last + 1 - first)  # from the end: a daemon's engines walk upwards
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("all ports of this worker are taken")


@pytest.fixture(scope="session")
def openai_sdk() -> None:
    """Loaded where a test needs it, which takes half a second of CPU, and before a loop runs, which would stand still."""
    importlib.import_module("openai")


@pytest.fixture(scope="session")
def anthropic_sdk() -> None:
    """As `openai_sdk`."""
    importlib.import_module("anthropic")


def _claim(name: str, run: Path) -> None:
    """Fail where another file's containers have that name: podman has it once, and files run side by side.

    `run` is the folder of the whole run, one above that of each worker.
    """
    here = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
    claim = run / f"container-{name}"
    with contextlib.suppress(FileExistsError), claim.open("x") as file:
        file.write(here)
        return
    assert claim.read_text() in ("", here), f"{claim.read_text()} has a profile {name} too: give this one another name."


class Daemon:
    """`sparkdash serve` as a child process, in folders of its own under `root`."""

    def __init__(self, root: Path, *, runtime: str, **settings: Any) -> None:
        self.root = root
        self.env = {**os.environ, **_folders(root), "SPARKDASH_RUNTIME": runtime, "NO_COLOR": "1"}
        self.profiles = root / "config" / "profiles"
        self.profiles.mkdir(exist_ok=True)
        given = {"shipped_profiles": False, "cache_dir": str(root / "cache"), "reserve_gib": 0.5}
        values = {**given, "engine_ports": engine_ports(), **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        (root / "config" / "config.toml").write_text("\n".join(lines) + "\n")
        self.program: tuple[str, ...] = ("-m", "sparkdash", "serve", "--port", "0")
        """What this Python runs; a test may put a daemon of its own together."""
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.log = root / "daemon.log"

    def containers(self) -> list[str]:
        """Names of the containers that are its own, running or not."""
        owner = paths.owner(self.root / "state")
        done = subprocess.run(
            ["podman", "ps", "--all", "--filter", f"label=sparkdash.owner={owner}", "--format", "{{.Names}}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    def write(self, name: str, text: str) -> None:
        """Put a profile file where the daemon reads them."""
        if self.env["SPARKDASH_RUNTIME"] == "podman" and "PYTEST_XDIST_WORKER" in os.environ:
            _claim(name, self.root.parent.parent)
        _replace(self.profiles / f"{name}.yaml", text)

    def configure(self, change: Callable[[str], str]) -> str:
        """Change config.toml; what it was."""
        file = self.root / "config" / "config.toml"
        before = file.read_text()
        _replace(file, change(before))
        return before

    def start(self, *program: str) -> Daemon:
        """Start it, or another program that serves, and wait until its log says that it does."""
        self.process = programs.Program(program or self.program, env=self.env, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if found := re.search(r"serving.*url=(http://\S+)/v1", line):
                self.url = found[1]
                break
        assert self.url, "".join(seen)
        # what else it says goes to a file, so that its pipe never fills
        with self.process.stderr as rest, self.log.open("a") as file:
            self._drain = subprocess.Popen(["cat"], stdin=rest, stdout=file)
        return self

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.died()

    def died(self) -> int:
        """Wait for the end of one that ends by itself; its exit code."""
        assert self.process is not None
        code = self.process.wait(timeout=30)
        self._drain.wait()
        return code

    def end(self, *, engines: bool = True) -> int:
        """Stop its engines and then the daemon; its exit code."""
        assert self.process is not None
        if engines and self.process.poll() is None:
            self.post("/api/stop", {"profile": None}, timeout=120)
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self._drain.wait()
        return code

    def call(self, method: str, path: str, body: Any = None, timeout: float = 60) -> tuple[int, Any]:
        """Status and JSON of one API call."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def get(self, path: str) -> Any:
        """The JSON of a GET that must succeed."""
        status, body = self.call("GET", path)
        assert status == 200, body
        return body

    def post(self, path: str, body: Any, timeout: float = 60) -> Any:
        """The JSON of a POST that must succeed."""
        status, answer = self.call("POST", path, body, timeout)
        assert status < 300, answer
        return answer

    def state(self) -> dict[str, Any]:
        """The snapshot."""
        return self.get("/api/state")

    def until(self, holds: Callable[[dict[str, Any]], Any], timeout: float = 110) -> dict[str, Any]:
        """Follow the event feed until the snapshot satisfies `holds`; no polling."""
        request = urllib.request.Request(self.url + "/api/events")
        deadline = time.monotonic() + timeout
        with urllib.request.urlopen(request, timeout=timeout) as feed:
            for line in feed:
                if line.startswith(b"data:"):
                    state = self.state()
                    if holds(state):
                        return state
                assert time.monotonic() < deadline, f"it did not come within {timeout:g} s"
        raise AssertionError("the feed ended")

    def sparkdash(self, *argv: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """Run a sparkdash command against this daemon."""
        return programs.run(["-m", "sparkdash", *argv], env=self.env, text=True, timeout=timeout)

    def begin(self, *argv: str) -> subprocess.Popen[str]:
        """Begin a sparkdash command against this daemon, and hear its stderr."""
        return programs.Program(["-m", "sparkdash", *argv], env=self.env, stderr=subprocess.PIPE, text=True)


def _replace(file: Path, text: str) -> None:
    """The whole file at once: a daemon that looks at it meanwhile finds the one or the other, and never an empty one."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text)
    part.replace(file)


@pytest.fixture(scope="module")
def new_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Daemon]]:
    """Makes daemons; whatever still lives at the module's end is stopped with its engines."""
    made: list[Daemon] = []

    def make(*, runtime: str, **settings: Any) -> Daemon:
        made.append(Daemon(tmp_path_factory.mktemp("daemon"), runtime=runtime, **settings))
        return made[-1]

    yield make
    for daemon in made:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.end()


class HostFs:
    """An empty image: with the host's system folders mounted read-only, any host program runs in it."""

    system = ("/usr", "/lib", "/lib64", "/bin", "/etc")

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def image(self) -> str:
        """Its name; built, without a registry, when it is first asked for."""
        (self._folder / "Containerfile").write_text("FROM scratch\nCOPY Containerfile /Containerfile\n")
        name = "localhost/sparkdash-test-hostfs:1"
        subprocess.run(
            ["podman", "build", "--quiet", "--tag", name, str(self._folder)], check=True, capture_output=True
        )
        return name

    def mounts(self, *more: Path) -> list[dict[str, str]]:
        """The system folders, this Python's own, and `more`, each at its own path."""
        base = Path(os.path.realpath(sys.executable)).parents[1]
        places = [*self.system, *(str(path) for path in (base, *more) if not str(path).startswith("/usr/"))]
        return [{"source": place, "target": place} for place in dict.fromkeys(places)]


@pytest.fixture(scope="session")
def hostfs(tmp_path_factory: pytest.TempPathFactory) -> HostFs:
    """The empty image."""
    return HostFs(tmp_path_factory.mktemp("image"))


BITS = {"F8_E4M3": 8, "U8": 8, "I32": 32, "BF16": 16, "F32": 32}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Makes a model's folder: config.json, and one safetensors file with a hand-written header over a hole.

    `checkpoint({name: (dtype, shape)}, config, folder=…)`; the header and the file's length are true, the weights are not
    written.
    """

    def made(tensors: dict[str, tuple[str, list[int]]], config: dict[str, Any], folder: Path | None = None) -> Path:
        place = folder or tmp_path / "model"
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(config))
        entries, at = {}, 0
        for name, (dtype, shape) in tensors.items():
            end = at + prod(shape) * BITS[dtype] // 8
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
        with (place / "model.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + at)
        return place

    return made
