"""Entry point of the real daemon, and its parts on this box; the demo has others."""

from __future__ import annotations

import faulthandler
import gc
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from sparkdash import log, paths
from sparkdash.daemon import listeners
from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.lifecycle import serve
from sparkdash.host.box import BoxReader
from sparkdash.host.log_limit import limit_logs
from sparkdash.host.memory.guard import MemoryGuard
from sparkdash.host.memory.helper import MemoryHelper
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings

YOUNG = 10_000
"""Python's default of 700 is reached by ten running requests: collecting cost each a twentieth of its time."""

FILES = 65_536
"""Wanted soft limit of open files: a stream takes two, so the usual 1,024 allow five hundred streams."""


def run(load_settings: Callable[[], Settings]) -> None:
    """Serve until SIGTERM or SIGINT. Raises SparkdashError for a failed start or a crashed supervisor."""
    log.configure()
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
        extra_tasks=(lambda daemon: _attended(daemon, notifier), lambda _: limit_logs(partial(_logs, settings))),
    )
    uvloop.run(serve(parts, ready=lambda _: _freeze()))


def raise_file_limit() -> None:
    """Raise the soft limit of open files to FILES, or to the hard limit if that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _freeze() -> None:
    """Exempt long-lived objects from garbage collection: each full pass blocked the loop for 30 to 40 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)


def _runtime(settings: Settings) -> Runtime:
    if settings.runtime == "process":
        from sparkdash.host.processes.process import Process

        return Process(_processes())
    from sparkdash.host.podman.podman import Podman

    return Podman(settings.runtime)


def _logs(settings: Settings) -> list[Path]:
    if settings.runtime != "process":
        return [paths.daemon_log()]
    from sparkdash.host.processes.process import Process

    return [paths.daemon_log(), *Process(_processes()).log_files()]


def _processes() -> Path:
    return paths.state_dir() / "processes"


async def _attended(daemon: Daemon, notifier: listeners.Notifier) -> None:
    """Tell systemd that the daemon is ready once the engines of an earlier daemon are known."""
    await daemon.supervisor.adopted()
    await notifier.attend(daemon.server.stopping(), f"serving {daemon.url}/v1 with {daemon.parts.runtime.name}")
