"""The real daemon: its parts on this box. The demo has others.

Owns: which runtime the settings mean, and what only a daemon of the owner's does (systemd, the garbage collector).
"""

from __future__ import annotations

import faulthandler
import gc
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from sparkdash import handover, log, notify, paths
from sparkdash.bench.plan import sweep_file
from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.lifecycle import serve
from sparkdash.daemon.log_limits import limit_logs
from sparkdash.host.box import BoxReader
from sparkdash.host.memory_guard.guard import Guard
from sparkdash.host.memory_helper.helper import MemoryHelper
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings

YOUNG = 10_000
"""Objects made and not yet gone, until the young ones are looked through for garbage. Python's 700 are ten requests under way, none of
them garbage: looking cost every request a twentieth of its time (measured with 32 at once)."""

FILES = 65_536
"""Descriptors that are asked for. A stream takes two, and the usual soft limit of 1,024 ends at five hundred of them; the hard limit
is mostly half a million, and stays."""


def run(load_settings: Callable[[], Settings]) -> None:
    """Serve until SIGTERM or SIGINT. Raises SparkdashError when it cannot begin, or when the supervisor crashed."""
    log.configure()
    open_more()
    sweep_file.forget()
    faulthandler.enable()  # systemd's watchdog ends us with SIGABRT: the journal then says where the loop was stuck
    notifier, settings = notify.from_environment(), load_settings()
    inherited = handover.from_environment(notifier)
    parts = Parts(
        settings=settings,
        runtime=_runtime(settings),
        reader=BoxReader(),
        profile_folders=settings.profile_folders,
        load_settings=load_settings,
        guard=Guard(settings),
        memory_helper=MemoryHelper(),
        handover=inherited,
        extra_tasks=(lambda daemon: _attended(daemon, notifier), lambda _: limit_logs(partial(_logs, settings))),
    )
    uvloop.run(serve(parts, ready=lambda _: _freeze()))


def open_more() -> None:
    """Raise the soft limit of open files as far as that makes sense and is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _freeze() -> None:
    """What lives as long as the daemon is no longer looked through for garbage: that took 30 to 40 ms each time, in which
    nobody was answered."""
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
    """Log files that no container runtime limits."""
    if settings.runtime != "process":
        return [paths.daemon_log()]
    from sparkdash.host.processes.process import Process

    return [paths.daemon_log(), *Process(_processes()).log_files()]


def _processes() -> Path:
    return paths.state_dir() / "processes"


async def _attended(daemon: Daemon, notifier: notify.Notifier) -> None:
    """systemd is told that the daemon serves once the engines of an earlier one are known."""
    await daemon.supervisor.adopted()
    await notifier.attend(daemon.server.stopping(), f"serving {daemon.url}/v1 with {daemon.parts.runtime.name}")
