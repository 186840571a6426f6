"""`sparkdash demo`: the whole product on a simulated box, with simulated twins of the profiles that ship.

Rule: it uses folders of its own and never touches the owner's daemon, containers or records. Only runs of the bench,
which `sparkdash ab` keeps among the owner's, are shared.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import uvloop

from sparkdash import catalog, daemon, paths
from sparkdash.catalog import Catalog
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import DaemonError, HostError
from sparkdash.settings import Settings, load_settings
from sparkdash.units import GIB

if TYPE_CHECKING:
    from sparkdash.sim.box import SimulatedBoxes

FIRST = "gpt-oss-120b"
"""The profile that runs when the demo opens."""
TWICE = "gpt-oss-20b"
"""The profile that has an engine on each of two boxes, where the demo has several."""
LEASH = "SPARKDASH_DEMO_LEASH"
"""Variable with the folder of a foreground demo, for its child. The child ends when its stdin does, however the
terminal went away.
"""
LEAVE_S = 1.0
"""Seconds within which the demo's own clients leave when it ends."""
READY = "sparkdash demo (SIMULATED) serves "
"""Line that the headless demo prints before its URL; the foreground demo waits for it."""


class DemoOptions(NamedTuple):
    """Port, traffic, speed and boxes of the demo."""

    port: int
    """Port of the gateway; 0 takes a free one."""
    traffic: bool
    speed: float
    nodes: int = 1
    topology: str = "switch"


def run_demo(options: DemoOptions, *, headless: bool) -> int:
    """Run the demo until Ctrl-C, SIGTERM or, with the TUI, until it is left. Returns the exit code."""
    return _serve(options) if headless else _watch(options)


def _watch(options: DemoOptions) -> int:
    given = [f"--{name}={getattr(options, name)}" for name in ("port", "speed", "nodes", "topology")]
    argv = [*paths.PYTHON, "-m", "sparkdash", "demo", "--headless", *given]
    if not options.traffic:
        argv.append("--no-traffic")
    with (
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryDirectory(prefix="sparkdash-demo-", ignore_cleanup_errors=True) as folder,
    ):
        child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            env={**os.environ, LEASH: folder},
        )  # fmt: skip
        try:
            from sparkdash.tui.app import run_dashboard as run_tui  # its import runs beside the child's start

            run_tui(_url_of(child, errors))
        finally:
            _end(child)
            asyncio.run(_sweep(Path(folder)))
    return 0


async def _sweep(folder: Path) -> None:
    """Stop engines that outlived a killed child."""
    from sparkdash.sim.box import left_runtimes

    for runtime in left_runtimes(folder):
        for left in await runtime.containers({}):
            await runtime.stop(left.name, 1.0)


def _url_of(child: subprocess.Popen[str], errors: IO[str]) -> str:
    assert child.stdout is not None  # noqa: S101 - opened as a pipe above
    for line in child.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).split()[0].removesuffix("/v1")
    child.wait()
    errors.seek(0)
    words = " ".join(errors.read().split())
    raise DaemonError(f"The demo did not come up. {words}", code="demo_failed")


def _end(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _serve(options: DemoOptions) -> int:
    with _own_folders() as folder:
        uvloop.run(_live(folder, options))
    return 0


@contextlib.contextmanager
def _own_folders() -> Iterator[Path]:
    """Give the parent's folder, which outlives a killed child, or a new one; remove it at the end."""
    folder = Path(os.environ.get(LEASH) or tempfile.mkdtemp(prefix="sparkdash-demo-"))
    os.environ["SPARKDASH_BENCH_DIR"] = str(paths.bench_dir())
    try:
        for room in ("CONFIG", "STATE", "RUNTIME"):
            os.environ[f"SPARKDASH_{room}_DIR"] = str(folder / room.lower())
            (folder / room.lower()).mkdir()
        os.environ["SPARKDASH_SIM_DIR"] = str(folder / "sim")
        (folder / "sim").mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def twins(speed: float, nodes: int = 1) -> Catalog:
    """Return the shipped profiles as simulated twins, which run `speed` times faster on that many boxes."""
    from sparkdash.sim.traffic import simulated_twin

    shipped = catalog.load_catalog([paths.shipped_profiles()])
    found = {name: simulated_twin(each, time_scale=speed, nodes=nodes) for name, each in shipped.profiles.items()}
    return Catalog(found | ({TWICE: found[TWICE].replace(replicas=2)} if nodes > 1 else {}))


async def _live(folder: Path, options: DemoOptions) -> None:
    from sparkdash.host.log_limit import limit_logs
    from sparkdash.sim.traffic import Traffic

    sources: list[Traffic] = []

    async def begin(running: daemon.Daemon) -> None:
        await running.supervisor.adopted()
        await running.supervisor.use(FIRST, cause=SwapCause.USER)
        if options.traffic:
            sources.append(Traffic(f"{running.url}/v1"))
            await sources[0].run()

    async def leave(running: daemon.Daemon) -> None:
        for source in sources:
            source.hang_up()
        await _left(running)

    load = partial(
        load_settings, host=Settings().host, port=options.port, runtime="process", stop_grace_s=3,
        cache_dir=folder / "cache",
    )  # fmt: skip
    settings = load()
    boxes = _boxes(folder, options, settings)

    async def limit(_running: daemon.Daemon) -> None:
        await limit_logs(lambda: [file for runtime in boxes.processes for file in runtime.log_files()])

    async def attend(running: daemon.Daemon) -> None:
        if boxes.attend is not None:
            await boxes.attend(running.bus.publish)

    tasks = (begin, limit, attend)
    host = f"{socket.gethostname()} ×{options.speed:g}" if options.speed != 1 else socket.gethostname()
    parts = daemon.Parts(
        settings=settings,
        load_settings=load,
        runtime=boxes.runtime,
        reader=boxes.reader,
        account=boxes.reader.account,
        nodes=boxes.nodes,
        load_catalog=lambda: twins(options.speed, options.nodes),
        simulated=True,
        host=host,
        extra_tasks=(*tasks, _until_let_go) if os.environ.get(LEASH) else tasks,
        before_stop=leave,
        stop_engines=True,
    )
    try:
        await daemon.serve(parts, ready=_say)
    except HostError as error:
        if error.code != "port_in_use":
            raise
        hint = "Another program, perhaps another demo, uses this port. Without --port the demo takes a free one."
        raise HostError(error.message, code=error.code, hint=hint) from None


async def _until_let_go(running: daemon.Daemon) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    running.server.stop()


def _boxes(folder: Path, options: DemoOptions, settings: Settings) -> "SimulatedBoxes":
    from sparkdash.domain.cluster import Topology
    from sparkdash.sim.box import one_box, several_boxes

    if options.nodes == 1:
        return one_box(folder)
    reserve, topology = int(settings.reserve_gib * GIB), Topology(options.topology)
    return several_boxes(folder, options.nodes, owner=paths.owner(), reserve=reserve, topology=topology)


async def _left(running: daemon.Daemon) -> None:
    """Return when the gateway has seen that its own clients are gone; soon in any case."""
    listener = running.bus.subscribe(samples=False)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                async for _ in listener:
                    if not any(request.internal for request in running.bus.snapshot.requests.values()):
                        break
    finally:
        running.bus.unsubscribe(listener)


def _say(running: daemon.Daemon) -> None:
    print(f"{READY}{running.url}/v1", flush=True)  # noqa: T201 - what scripts wait for
