"""Composition of the daemon: with `build_gateway` the only module that knows every concrete class."""

import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from sparkdash import __version__, keyring, listen, paths
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.catalog.catalog import with_replicas
from sparkdash.daemon import control_actions, reloading
from sparkdash.daemon.config_file import SettingsReader
from sparkdash.daemon.daemon import Daemon, MemoryAccounts, Parts
from sparkdash.daemon.listeners import Listeners, publish_notice
from sparkdash.daemon.other_nodes import OtherNodes
from sparkdash.daemon.profile_files import READ_S, ProfileFiles
from sparkdash.daemon.samples import record_in, record_notices, recording_samples, restore_past
from sparkdash.domain.engine import no_evidence
from sparkdash.domain.metric import TrafficLook
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.gateway.app import Gateway
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.exclusive import Exclusive
from sparkdash.gateway.http.capture import Capture, find_captured
from sparkdash.gateway.http.exchange import BodyBudget
from sparkdash.gateway.protocol.replicas import ReplicaChoice
from sparkdash.host.evidence import EvidenceTaker
from sparkdash.host.kernel_log import KernelLog
from sparkdash.host.runtime import OneNode
from sparkdash.log import LOG
from sparkdash.prometheus import MetricsExporter
from sparkdash.redaction import remember_secrets
from sparkdash.settings import Settings, settings_file
from sparkdash.store import Store
from sparkdash.store.usage import utc_day
from sparkdash.supervisor import Supervisor, Tools
from sparkdash.supervisor.canary import Canaries
from sparkdash.supervisor.tools import not_killed
from sparkdash.telemetry import Collector, CollectorInputs
from sparkdash.units import GIB
from sparkdash.upstream import Upstream
from sparkdash.wire import ConnectionLimit


def _gateway_deps(daemon: Daemon, listeners: Listeners, replicas: ReplicaChoice) -> Deps:
    parts, settings, store, supervisor = daemon.parts, daemon.parts.settings, daemon.store, daemon.supervisor
    on_box = not parts.simulated

    return Deps(
        supervisor=supervisor,
        bus=daemon.bus,
        upstream=daemon.upstream,
        catalog=lambda: supervisor.catalog,
        settings=settings,
        body_budget=BodyBudget(settings.bodies_limit_mib),
        reload=lambda: reloading.reload(daemon),
        refresh=lambda: reloading.refresh(daemon),
        shutdown=partial(control_actions.shutdown, daemon),
        choices=lambda: supervisor.settings.any,
        record=record_in(store.record_request, daemon.exporter.record),
        metrics=daemon.exporter.page,
        history=store.history,
        keys=listeners.keys,
        used_today=lambda key: store.tokens_on(utc_day(time.time()), key),
        audit=_append_to_audit_log,
        capture=_capture(settings),
        responses=paths.state_dir() / "responses" if settings.responses_mib else None,
        captured=lambda request_id: find_captured(paths.state_dir(), request_id),
        examine=partial(control_actions.run_doctor, daemon) if on_box else None,
        inventory=partial(control_actions.stock_of_profiles, daemon) if on_box else None,
        memory=daemon.accounts.now if on_box else parts.account,
        runs=partial(control_actions.bench_runs, simulated=parts.simulated),
        start_run=partial(control_actions.start_bench_run, daemon),
        settings_list=partial(control_actions.settings_list, daemon),
        change_setting=partial(control_actions.change_setting, daemon),
        resume=partial(control_actions.resume_bench_run, daemon),
        replicas=replicas,
        exclusive=Exclusive(),
    )


@asynccontextmanager
async def kept_homes(file: Path) -> AsyncIterator[ReplicaChoice]:
    """Have conversations stay on their replicas over a restart, which engines outlive with their caches.

    An unreadable file counts as empty.
    """
    try:
        known = {str(key): str(home) for key, home in json.loads(paths.read_small_file(file)).items()}
    except (OSError, ValueError, RecursionError, AttributeError):
        known = {}
    choice = ReplicaChoice(known)
    try:
        yield choice
    finally:
        if choice.homes:
            with suppress(OSError):
                paths.replace_file(file, json.dumps(choice.homes).encode())


def _capture(settings: Settings) -> Capture | None:
    if not settings.capture:
        return None
    kept = Capture(paths.state_dir())
    LOG.warning("requests are recorded in a file, as `capture` in config.toml says", file=str(kept.path))
    return kept


def _append_to_audit_log(entry: Mapping[str, object]) -> None:
    try:
        keyring.append_entry(keyring.audit_file(), entry)
    except OSError as error:  # a full disk must not keep the owner from stopping an engine
        LOG.warning("the audit log cannot be written", why=error.strerror)


@asynccontextmanager
async def build_daemon(parts: Parts, listeners: Listeners) -> AsyncIterator[Daemon]:
    """Make all parts without starting them; close their files and sockets when the context is left."""
    remember_secrets(os.environ)
    files = ProfileFiles(parts.profile_folders, settings_file())
    await files.look(READ_S)
    async with _composed(parts, listeners, files) as daemon:
        yield daemon


@asynccontextmanager
async def _composed(parts: Parts, listeners: Listeners, files: ProfileFiles) -> AsyncIterator[Daemon]:
    profiles = await reloading.current_catalog(parts, files)
    bus, settings = Bus(_first_snapshot(parts, listeners.url), time.time), parts.settings
    database, most_bytes = paths.state_dir() / "sparkdash.db", int(settings.history.max_gib * GIB)
    async with (
        Upstream() as upstream,
        Store.opened(database, bus.publish, most_bytes) as store,
        kept_homes(paths.state_dir() / "replicas.json") as replicas,
    ):
        restore_past(bus, store)
        record_notices(bus, store)
        daemon = Daemon(parts, listeners.url, files, bus, upstream, store)
        if parts.connects_nodes:
            daemon.others = OtherNodes(parts.runtime, parts.reader, settings, bus.publish)
        profiles = with_replicas(profiles, daemon.node_names)
        daemon.accounts = MemoryAccounts(lambda: control_actions.memory_of_box(daemon), time.monotonic)
        daemon.supervisor = _supervisor(daemon, profiles)
        if daemon.others is not None:
            daemon.others.attach(daemon.supervisor, store.record_kill)
        daemon.exporter = MetricsExporter(bus, lambda: daemon.collector.totals, database, most_bytes)
        deps = _gateway_deps(daemon, listeners, replicas)
        daemon.collector = _collector(daemon, deps.meter.look)
        daemon.server = _server(deps, listeners)
        daemon.rereading = SettingsReader(parts.load_settings, bus.publish)
        reloading.publish_profiles(daemon, profiles)
        try:
            yield daemon
        finally:
            bus.on_notice = None  # the store is closed next


def _collector(daemon: Daemon, traffic: Callable[..., TrafficLook]) -> Collector:
    parts, bus, supervisor, others = daemon.parts, daemon.bus, daemon.supervisor, daemon.others
    nodes = others.nodes if others else parts.nodes
    return Collector(
        CollectorInputs(
            upstream=daemon.upstream,
            engines=lambda: supervisor.engines,
            reader=parts.reader,
            pids=supervisor.pids,
            foreign=supervisor.foreign_containers,
            publish=recording_samples(bus.publish, daemon.store),
            settings=lambda: supervisor.settings,
            listeners=lambda: bus.listeners,
            names=supervisor.metric_names,
            nodes=lambda: dict(nodes.samples) if nodes else {},
            traffic=traffic,
            pace_nodes=others.watch.pace if others else lambda _: None,
        )
    )


def _supervisor(daemon: Daemon, profiles: Catalog) -> Supervisor:
    parts, others, kernel_log = daemon.parts, daemon.others, KernelLog()
    evidence = EvidenceTaker(paths.incidents_dir().absolute(), kernel_log)
    return Supervisor(
        Tools(
            catalog=profiles,
            runtime=others.runtime if others else parts.runtime,
            upstream=daemon.upstream,
            reader=parts.reader,
            publish=daemon.bus.publish,
            settings=parts.settings,
            owner=paths.owner(),
            nodes=(others.nodes if others else parts.nodes) or OneNode(parts.reader),
            shipper=others.shipper if others else None,
            killed_on_node=others.watch.kill_reason if others else not_killed,
            store=daemon.store,
            guard=parts.guard,
            memory_helper=parts.memory_helper,
            canaries=None if parts.simulated else Canaries(paths.state_dir() / "canaries.json"),
            on_needs=lambda: reloading.publish_profiles(daemon, daemon.supervisor.catalog),
            before_ready=lambda profile: daemon.collector.begin(profile),
            foreign=daemon.accounts.foreign,
            take_evidence=no_evidence if parts.simulated else evidence.take,
            kernel_log=None if parts.simulated else kernel_log,
            figures=lambda profile: daemon.collector.figures(profile),
            gpu_figures=lambda: daemon.collector.gpu,
        )
    )


def _server(deps: Deps, listeners: Listeners) -> listen.Server:
    most = listen.most_connections()
    limit = ConnectionLimit(most, partial(publish_notice, deps.bus.publish, most))
    linger_s = listen.LINGER_S if listeners.outlives else 0.0
    return listen.Server(Gateway(deps).serve, listeners.tls, linger_s=linger_s, limit=limit)


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
    return Snapshot(seq=int(now * 1000), at=now, daemon=info)
