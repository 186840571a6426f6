"""The daemon's parts on this box, the order of their start and stop, and what happens when one crashes."""

import asyncio
import ctypes
import faulthandler
import gc
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import uvloop

from sparkdash import listen, paths
from sparkdash.daemon import listeners, reloading
from sparkdash.daemon.build import build_daemon
from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.listeners import open_listeners
from sparkdash.daemon.reloading import watch_files
from sparkdash.domain.event import Level, Notice
from sparkdash.errors import SparkdashError
from sparkdash.host.box import BoxReader
from sparkdash.host.log_limit import limit_logs
from sparkdash.host.memory.guard import MemoryGuard
from sparkdash.host.memory.helper import MemoryHelper
from sparkdash.host.runtime import Runtime
from sparkdash.log import LOG
from sparkdash.settings import Settings

ENDING = (signal.SIGINT, signal.SIGTERM)
STDIN = 0


def install_handlers(loop: asyncio.AbstractEventLoop, daemon: Daemon) -> None:
    for number in ENDING:
        loop.add_signal_handler(number, daemon.server.stop)
    loop.add_signal_handler(signal.SIGHUP, _hung_up, daemon, _on_terminal())


def _hung_up(daemon: Daemon, from_terminal: bool) -> None:
    if from_terminal and not _on_terminal():
        daemon.server.stop()
        return
    LOG.info("reading profiles and settings again", asked_by="SIGHUP")
    daemon.in_background(reloading.reload(daemon), "reload")


def _on_terminal() -> bool:
    """Whether standard input is a terminal that still exists."""
    return os.isatty(STDIN)


RESTART_S = (1.0, 5.0, 30.0)
"""Pauses before telemetry is started again; the last one repeats."""
ADOPTED_S = 2.0
"""Longest wait at the start for engines of an earlier daemon: a call to the runtime may take 20 seconds."""
FAREWELL_S = listen.GRACE_S - 1.0
"""Time for running answers after a request to stop; the last second is for telling clients whose answers are cut."""

GIVE_UP_S = 40.0
"""Longest wait for a stop or a start under way once the server has ended; systemd's limit for it all is a minute."""


async def serve(parts: Parts, *, ready: Callable[[Daemon], None] | None = None) -> None:
    """Start all parts, serve, and stop them in reverse order. `ready` is called once the daemon answers."""
    with open_listeners(parts.settings, parts.handover) as listeners:
        async with build_daemon(parts, listeners) as daemon:
            try:
                await _live(daemon, listeners.sockets, ready)
            finally:
                await asyncio.shield(daemon.supervisor.close(stop_engines=parts.stop_engines))


async def _live(daemon: Daemon, sockets: list[socket.socket], ready: Callable[[Daemon], None] | None) -> None:
    loop = asyncio.get_running_loop()
    install_handlers(loop, daemon)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(daemon.supervisor.run(), name="supervisor"),
            group.create_task(_kept_alive(daemon, "telemetry", daemon.collector.run), name="telemetry"),
            group.create_task(_kept_alive(daemon, "metrics", daemon.exporter.run), name="metrics"),
            group.create_task(_kept_alive(daemon, "profiles", lambda: watch_files(daemon)), name="profiles"),
            group.create_task(_end_requests(daemon), name="farewell"),
            *(group.create_task(_awaited(task(daemon)), name="beside") for task in daemon.parts.extra_tasks),
        ]
        if daemon.others:
            tasks.append(group.create_task(_kept_alive(daemon, "nodes", daemon.others.run), name="nodes"))
        tasks.append(await _adopted(daemon, group))
        if ready is not None:
            loop.call_soon(ready, daemon)
        loop.call_soon(_freeze)
        LOG.info("serving", url=f"{daemon.url}/v1", runtime=daemon.parts.runtime.name)
        await daemon.server.serve(sockets=sockets)
        loop.call_later(GIVE_UP_S, daemon.supervisor.give_up)
        for task in (*tasks, *daemon.background_tasks):
            task.cancel()


async def _adopted(daemon: Daemon, group: asyncio.TaskGroup) -> asyncio.Task[None]:
    """Wait for the engines of an earlier daemon, ADOPTED_S at most; return the task that adopts them."""
    adopted = group.create_task(daemon.supervisor.adopted(), name="adopted")
    await asyncio.wait({adopted}, timeout=ADOPTED_S)
    if not adopted.done():
        text = (
            f"{daemon.parts.runtime.name} has not answered yet which engines run. "
            "Requests for an engine wait for its answer."
        )
        LOG.warning(text)
        daemon.bus.publish(Notice(level=Level.WARNING, code="runtime_slow", text=text))
    return adopted


async def _end_requests(daemon: Daemon) -> None:
    """End requests once the daemon stops: waiting ones at once, running ones after FAREWELL_S."""
    await daemon.server.stopping()
    if daemon.parts.before_stop is not None:
        await daemon.parts.before_stop(daemon)
    await asyncio.sleep(daemon.server.state.linger_s)  # requests on kept connections are still served
    daemon.supervisor.retire(cut=False)
    daemon.bus.end()  # dashboards look for the next daemon, instead of keeping this one
    await asyncio.sleep(FAREWELL_S - daemon.server.state.linger_s)
    daemon.supervisor.retire(cut=True)


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _kept_alive(daemon: Daemon, name: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except Exception as error:
            count = daemon.restarts[name] = daemon.restarts.get(name, 0) + 1
            LOG.exception("a part crashed and is started again", part=name, restarts=count)
            text = f"{name} crashed ({type(error).__name__}) and was started again; restart {count}."
            daemon.bus.publish(Notice(level=Level.ERROR, code=f"{name}_restarted", text=text))
            await asyncio.sleep(RESTART_S[min(count, len(RESTART_S)) - 1])
        else:
            return


def expected_error(error: BaseException) -> SparkdashError | None:
    """Return the first expected error inside an exception group, for the command line."""
    if isinstance(error, SparkdashError):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [expected_error(inner) for inner in error.exceptions]
        return next((e for e in found if e), None)
    return None


YOUNG = 10_000
"""Python's default of 700 is reached by ten running requests: collecting cost each a twentieth of its time."""

FILES = 65_536
"""Wanted soft limit of open files: a stream takes two, so the usual 1,024 allow five hundred streams."""


def run(load_settings: Callable[[], Settings]) -> None:
    """Serve until SIGTERM or SIGINT. Raises SparkdashError for a failed start or a crashed supervisor."""
    raise_file_limit()
    faulthandler.enable()  # systemd's watchdog ends us with SIGABRT: the journal then says where the loop was stuck
    notifier, settings = listeners.notifier_from_environment(), load_settings()
    inherited = listeners.inherited_sockets(notifier)
    parts = Parts(
        settings=settings,
        runtime=_runtime(settings),
        reader=BoxReader(),
        connects_nodes=settings.runtime != "process",
        profile_folders=settings.profile_folders,
        load_settings=load_settings,
        guard=MemoryGuard(settings),
        memory_helper=MemoryHelper(),
        handover=inherited,
        extra_tasks=(lambda daemon: _attended(daemon, notifier), lambda _: limit_logs(_logs)),
    )
    uvloop.run(serve(parts))


def raise_file_limit() -> None:
    """Raise the soft limit of open files to FILES, or to the hard limit if that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _freeze() -> None:
    """Exempt long-lived objects from garbage collection: each full pass blocked the loop for 30 to 40 ms.

    What reading the profiles freed goes back to the system: 20 MiB that the C library would keep.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
    with suppress(AttributeError):  # not in every C library
        ctypes.CDLL(None).malloc_trim(0)


def _runtime(settings: Settings) -> Runtime:
    from sparkdash.host.podman.with_starters import runtime_called

    return runtime_called(settings.runtime)


def _logs() -> list[Path]:
    from sparkdash.host.podman.with_starters import processes_of_daemon

    return [paths.daemon_log(), *processes_of_daemon().log_files()]


async def _attended(daemon: Daemon, notifier: listeners.Notifier) -> None:
    """Tell systemd that the daemon is ready once the engines of an earlier daemon are known."""
    await daemon.supervisor.adopted()
    await notifier.attend(daemon.server.stopping(), f"serving {daemon.url}/v1 with {daemon.parts.runtime.name}")
