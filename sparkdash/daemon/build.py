"""Composition of the daemon: with `build_gateway` the only module that knows every concrete class.

Owns: making each part out of its dependencies. Must not know what a part does, nor when it begins.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog

from sparkdash import __version__, listen, paths
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.daemon import connection_notices, control_actions, reloading
from sparkdash.daemon.alerting import Alerting
from sparkdash.daemon.build_gateway import gateway_deps
from sparkdash.daemon.config_revision import SettingsReader
from sparkdash.daemon.daemon import Daemon, Opened, Parts
from sparkdash.daemon.listeners import Listeners
from sparkdash.daemon.memory_accounts import MemoryAccounts
from sparkdash.daemon.other_nodes import OtherNodes, OtherNodesInputs
from sparkdash.daemon.past import record_notices, recording_samples, restore_past
from sparkdash.daemon.profile_files import READ_S, ProfileFiles
from sparkdash.domain.incident import no_evidence
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.gateway import app as gateway
from sparkdash.gateway.count.counter import TokenCounter
from sparkdash.gateway.translate.translator import Translator
from sparkdash.hooks import HookDispatcher
from sparkdash.host.evidence import EvidenceTaker
from sparkdash.host.files import inotify
from sparkdash.host.flag_store import FlagStore
from sparkdash.host.kernel_log.reader import KernelLog
from sparkdash.host.nodes import OneNode
from sparkdash.prometheus import MetricsExporter
from sparkdash.settings import Settings, settings_file
from sparkdash.store import Store
from sparkdash.supervisor import Supervisor, Tools
from sparkdash.supervisor.tools import not_killed
from sparkdash.telemetry import Collector, CollectorInputs
from sparkdash.tracing import RequestTracer
from sparkdash.units import GIB
from sparkdash.upstream import Upstream
from sparkdash.wire import ConnectionLimit

LOG = structlog.get_logger("sparkdash")


@asynccontextmanager
async def build_daemon(parts: Parts, listeners: Listeners) -> AsyncIterator[Daemon]:
    """Make all parts without starting them; close their files and sockets when the context is left."""
    edited = asyncio.Event()
    with inotify.watch_folders(edited.set) as kernel:
        settings = settings_file() if parts.load_settings else None
        files = ProfileFiles(parts.profile_folders, settings, kernel, edited.set)
        await files.look(READ_S)
        async with _composed(parts, listeners, files, edited) as daemon:
            yield daemon


@asynccontextmanager
async def _composed(
    parts: Parts, listeners: Listeners, files: ProfileFiles, edited: asyncio.Event
) -> AsyncIterator[Daemon]:
    profiles = await reloading.current_catalog(parts, files)
    bus = Bus(_first_snapshot(parts, listeners.url), time.time)
    async with (
        Upstream() as upstream,
        Store.opened(_database(), bus.publish, int(parts.settings.history.max_gib * GIB)) as store,
        Translator(paths.runtime_dir(), parts.settings.translator_idle_s, bus.publish) as translator,
        TokenCounter(
            paths.runtime_dir(), parts.settings.translator_idle_s, parts.settings.hf_home.expanduser()
        ) as counter,
        RequestTracer(lambda: bus.snapshot, bus.publish) as tracer,
    ):
        restore_past(bus, store)
        record_notices(bus, store)
        opened = Opened(bus, upstream, store, translator, counter, tracer)
        daemon = _daemon(parts, profiles, opened, listeners, files, edited)
        reloading.publish_profiles(daemon, profiles)
        try:
            yield daemon
        finally:
            bus.on_notice = None  # the store is closed next


def _daemon(
    parts: Parts,
    profiles: Catalog,
    opened: Opened,
    listeners: Listeners,
    files: ProfileFiles,
    edited: asyncio.Event,
) -> Daemon:
    bus, upstream, store = opened.bus, opened.upstream, opened.store
    holder: list[Daemon] = []
    others = _other_nodes(parts, bus, lambda: holder[0].supervisor.settings if holder else parts.settings)
    nodes = others.directory if others else parts.nodes
    accounts = MemoryAccounts(lambda: control_actions.memory_of_box(holder[0]), time.monotonic)
    supervisor = _supervisor(parts, profiles, opened, others, accounts, lambda: holder[0])
    if others is not None:
        others.attach(supervisor, store.record_kill)
    most_bytes = int(parts.settings.history.max_gib * GIB)
    exporter = MetricsExporter(bus, lambda: holder[0].collector.totals, _database(), most_bytes)
    deps = gateway_deps(parts, opened, listeners, supervisor, exporter, accounts, lambda: holder[0])
    alerting = Alerting(bus.publish, lambda: supervisor.settings.alerts)
    collector = Collector(
        CollectorInputs(
            upstream=upstream,
            engines=lambda: supervisor.engines,
            reader=parts.reader,
            pids=supervisor.pids,
            strangers=supervisor.strangers,
            publish=recording_samples(alerting.publish, store),
            settings=lambda: supervisor.settings,
            listeners=lambda: bus.listeners,
            names=supervisor.metric_names,
            nodes=lambda: dict(nodes.samples) if nodes else {},
            traffic=deps.meter.look,
            pace_nodes=others.watch.pace if others else lambda _: None,
        )
    )
    daemon = Daemon(
        parts,
        bus,
        supervisor,
        collector,
        _server(deps, listeners),
        listeners.url,
        files,
        edited,
        SettingsReader(parts.load_settings, bus.publish, settings_file()) if parts.load_settings else None,
        HookDispatcher(bus, upstream, lambda: supervisor.settings.hooks),
        exporter,
        store,
        others,
    )
    holder.append(daemon)
    return daemon


def _supervisor(
    parts: Parts,
    profiles: Catalog,
    opened: Opened,
    others: OtherNodes | None,
    accounts: MemoryAccounts,
    daemon: Callable[[], Daemon],
) -> Supervisor:
    """Make the supervisor; `daemon` is asked once it runs."""
    kernel_log = KernelLog()
    return Supervisor(
        Tools(
            catalog=profiles,
            runtime=others.runtime if others else parts.runtime,
            upstream=opened.upstream,
            reader=parts.reader,
            publish=opened.bus.publish,
            settings=parts.settings,
            owner=paths.owner(),
            nodes=(others.directory if others else parts.nodes) or OneNode(parts.reader),
            shipper=others.shipper if others else None,
            killed_on_node=others.watch.kill_reason if others else not_killed,
            store=opened.store,
            guard=parts.guard,
            memory_helper=parts.memory_helper,
            flag_store=FlagStore(paths.flags_dir()),
            on_needs=lambda: reloading.publish_profiles(daemon(), daemon().supervisor.catalog),
            before_ready=lambda profile: daemon().collector.begin(profile),
            foreign=accounts.foreign,
            take_evidence=no_evidence if parts.simulated else _evidence(kernel_log).take,
            kernel_log=None if parts.simulated else kernel_log,
            figures=lambda profile: daemon().collector.figures(profile),
            gpu_figures=lambda: daemon().collector.gpu,
        )
    )


def _server(deps: gateway.Deps, listeners: Listeners) -> listen.Server:
    limit = ConnectionLimit(listen.most_connections(), partial(connection_notices.publish_notice, deps.bus.publish))
    linger_s = listen.LINGER_S if listeners.outlives else 0.0
    return listen.Server(gateway.build(deps).ready(), listeners.tls, linger_s=linger_s, limit=limit)


def _database() -> Path:
    return paths.state_dir() / "sparkdash.db"


def _other_nodes(parts: Parts, bus: Bus, settings: Callable[[], Settings]) -> OtherNodes | None:
    if not parts.connects_nodes:
        return None
    return OtherNodes(OtherNodesInputs(parts.runtime, parts.reader, settings, bus.publish))


def _evidence(log: KernelLog) -> EvidenceTaker:
    return EvidenceTaker(paths.incidents_dir().absolute(), log)


def _first_snapshot(parts: Parts, url: str) -> Snapshot:
    now = time.time()
    info = DaemonInfo(
        version=__version__,
        host=parts.host,
        pid=os.getpid(),
        started_at=now,
        runtime=parts.runtime.name,
        url=f"{url}/v1",
        simulated=parts.simulated,
    )
    # Numbers begin at this life's own millisecond: a reader of an earlier daemon must not take ours for what follows.
    return Snapshot(seq=int(now * 1000), at=now, daemon=info, traffic=parts.traffic_on)
