"""Composition of the gateway's dependencies: which call of the control API is carried out by what.

Owns: what a client may cause in this daemon, and which calls the demo does not offer. Must not know how they are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog

from sparkdash import paths
from sparkdash.access import keyring
from sparkdash.daemon import control_actions, reloading
from sparkdash.daemon.daemon import Daemon, Opened, Parts
from sparkdash.daemon.listeners import Listeners
from sparkdash.daemon.memory_accounts import MemoryAccounts
from sparkdash.domain.lease import Request
from sparkdash.gateway import app as gateway
from sparkdash.gateway.relay.capture import Capture, find_captured
from sparkdash.gateway.shared.bodies import BodyBudget, Uploads
from sparkdash.gateway.shared.exclusive import Exclusive
from sparkdash.prometheus import MetricsExporter
from sparkdash.settings import Settings
from sparkdash.store.key_usage import day_of
from sparkdash.supervisor import Supervisor

LOG = structlog.get_logger("sparkdash")


def gateway_deps(
    parts: Parts,
    opened: Opened,
    listeners: Listeners,
    supervisor: Supervisor,
    exporter: MetricsExporter,
    accounts: MemoryAccounts,
    daemon: Callable[[], Daemon],
) -> gateway.Deps:
    """Make what the gateway's handlers call; `daemon` is asked once it runs."""
    settings, store = parts.settings, opened.store
    read, on_box = parts.load_settings, not parts.simulated

    def record(request: Request) -> None:
        store.record_request(request)
        supervisor.served(request)
        exporter.record(request)
        opened.tracer.record(request)

    return gateway.Deps(
        supervisor=supervisor,
        bus=opened.bus,
        upstream=opened.upstream,
        catalog=lambda: supervisor.catalog,
        settings=settings,
        body_budget=BodyBudget(settings.bodies_limit_mib),
        uploads=Uploads(settings.cache_dir.expanduser() / "uploads", settings.uploads_limit_mib),
        reload=lambda: reloading.reload(daemon()),
        refresh=lambda: reloading.refresh(daemon()),
        shutdown=lambda stop: control_actions.shutdown(daemon(), stop),
        choices=lambda: supervisor.settings.any,
        traffic=parts.traffic,
        record=record,
        metrics=exporter.page,
        history=store.history,
        keys=listeners.keys,
        used_today=lambda key: store.tokens_on(day_of(time.time()), key),
        audit=_append_to_audit_log,
        capture=_capture(settings),
        captured=lambda request_id: find_captured(paths.state_dir(), request_id),
        examine=(lambda names: control_actions.run_doctor(daemon(), names)) if on_box else None,
        shelf=(lambda profiles: control_actions.stock_of_profiles(daemon(), profiles)) if on_box else None,
        memory=accounts.now if on_box else None,
        runs=lambda run: control_actions.bench_runs(run, simulated=parts.simulated),
        start_run=lambda wish: control_actions.start_bench_run(daemon(), wish),
        settings_list=(lambda: control_actions.settings_list(daemon(), read)) if read else None,
        change_setting=(lambda wish: control_actions.change_setting(daemon(), read, wish)) if read else None,
        resume=lambda run: control_actions.resume_bench_run(daemon(), run),
        exclusive=Exclusive(),
        translator=opened.translator,
        counter=opened.counter,
    )


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
