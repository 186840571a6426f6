"""Fixtures of every test: a home of its own, no silent skips where CI forbids them, and a daemon on request."""

import asyncio
import contextlib
import gc
import importlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import closing_servers
import hypothesis
import own_run
import pytest
import uvloop
from daemons import Daemon, own_folder_variables
from docker_daemon import DockerDaemon
from own_run import engine_ports
from run_times import RunTimes
from thorough import tries
from xdist.scheduler import LoadScopeScheduling

from sparkdash.log import LOG

closing_servers.fix()
hypothesis.settings.register_profile("sparkdash", deadline=None, max_examples=max(tries(100), 25))
hypothesis.settings.load_profile("sparkdash")  # a busy box is no failure

SLOW = (
    "tests/real/", "tests/two_hosts/", "tests/faults/", "tests/podman/", "tests/e2e/", "tests/packaging/",
    "tests/bench/", "tests/tui/", "tests/cli/",
)  # fmt: skip
"""Rooms with long files, most of which wait for real programs; the longest first."""
REAL_VLLM = (
    "tests/real/test_real_cache.py", "tests/real/test_real_pooling.py", "tests/real/test_real_stuck_vllm.py",
    "tests/real/test_real_vllm.py", "tests/two_hosts/test_two_hosts_vllm.py",
)  # fmt: skip
"""One after the other: each load takes two cores for a minute, and moves gigabytes that another test measures."""
APART = ("tests/faults/test_faults_start.py", "tests/faults/test_faults_stop.py")
"""Long ones, where each test makes all that it needs."""


NOBODY = "1"
"""A port on which nothing is served."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make full` asks for the tables, `make check` for both event loops."""
    parser.addoption("--times", action="store_true", help="print where the time went, by room and by file")
    parser.addoption(
        "--uvloop", action="store_true", help="run the tests on the daemon's event loop, not asyncio's own"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The run gets its own surroundings. The timer measures in each worker, and adds up in the process that prints."""
    if config.getoption("--uvloop"):
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    if config.getoption("--times"):
        config.pluginmanager.register(RunTimes())
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        own_run.begin()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that `pytest_unconfigure` is reached
    own_run.own_podman_storage(worker or "alone")


def pytest_unconfigure() -> None:
    """Nothing that the tests started outlives the run, however it ends."""
    if "PYTEST_XDIST_WORKER" not in os.environ and (folder := os.environ.pop(own_run.VARIABLE, None)):
        own_run.end(Path(folder))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings, state and socket in the test's own folder, never the owner's; nor is a daemon asked that runs on this box."""
    for name, folder in own_folder_variables(tmp_path).items():
        monkeypatch.setenv(name, folder)
    for name in ("HOST", "RUNTIME", "URL"):
        monkeypatch.delenv(f"SPARKDASH_{name}", raising=False)
    monkeypatch.setenv("SPARKDASH_PORT", NOBODY)
    return tmp_path


@pytest.fixture(autouse=True)
def own_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that logs less does so for its own test alone."""
    monkeypatch.setattr(LOG, "least", LOG.least)


def pytest_sessionstart() -> None:
    """Programs that the tests start can be interrupted, also where the shell has told this one (`make test &`) to ignore it:
    children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze what is loaded for the tests: no search for garbage walks it, neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, so that the last ones are short."""
    ranks = {room: rank for rank, room in enumerate(SLOW)}
    items.sort(key=lambda item: next((rank for room, rank in ranks.items() if item.nodeid.startswith(room)), len(SLOW)))


class Groups(LoadScopeScheduling):
    """A file's tests stay together, for what they share; where they share nothing any worker takes any of them."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(REAL_VLLM):
            return "real vLLM"
        return nodeid if nodeid.startswith(APART) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
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
    importlib.import_module("anthropic")


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


@pytest.fixture
def new_child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts programs, and waits for the first line of those that say one; all are killed at the test's end."""
    made: list[subprocess.Popen[str]] = []

    def start(*argv: str, says: bool = True, **how: Any) -> subprocess.Popen[str]:
        made.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **how))
        if says:
            assert made[-1].stdout.readline()
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


class HostFs:
    """An empty image: with the host's system folders mounted read-only, any host program runs in it."""

    system = ("/usr", "/lib", "/lib64", "/bin", "/etc")

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def image(self) -> str:
        """Name of the image; built, without a registry, when it is first asked for."""
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
    return HostFs(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[DockerDaemon]:
    """Real dockerd of this worker; a skip where there is none."""
    made = DockerDaemon()
    yield made
    made.end()


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
