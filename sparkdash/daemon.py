"""The daemon: the one file that knows every concrete class, and how long each lives.

Owns: composition, the order of start and stop, and what happens when a part crashes: telemetry is started
again (logged, counted, shown), a crash in the supervisor ends the daemon, since wrong books are worse than none.
Must not know what any part does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import structlog
import uvloop

from sparkdash import __version__, catalog, listen, log, notify, paths
from sparkdash.access import audit
from sparkdash.access.keyring import Keyring
from sparkdash.access.keyring import place as keyring_place
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.catalog.watch import Watch, keeping
from sparkdash.domain.event import Level, Notice, ProfilesChanged
from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.lease import Request
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.engines import registry
from sparkdash.errors import ProfileError, SparkdashError
from sparkdash.gateway import app as gateway
from sparkdash.gateway.capture import Capture
from sparkdash.gateway.exchange import Exchange
from sparkdash.gateway.translate.translator import Translator
from sparkdash.host.box import BoxReader
from sparkdash.host.guard import Guard
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Runtime
from sparkdash.revision import Rereading
from sparkdash.settings import Settings
from sparkdash.settings import place as settings_file
from sparkdash.store import Store
from sparkdash.store.usage import day_of
from sparkdash.supervisor import Supervisor
from sparkdash.telemetry import Collector
from sparkdash.upstream import Upstream

LOG = structlog.get_logger("sparkdash")
RESTART_S = (1.0, 5.0, 30.0)
"""Pauses before telemetry is started again; the last one repeats."""
LOOK_S = (2.0, 15.0)
"""Pauses between looks at the profile files: while somebody listens, and while nobody does, so that an idle box sleeps."""

FAREWELL_S = listen.GRACE_S - 1.0
"""How long answers that are under way may go on once the daemon is told to end; the rest is for telling their clients."""


@dataclass(frozen=True)
class Parts:
    """What differs between the real daemon and the demo."""

    settings: Settings
    runtime: Runtime
    reader: HostReader
    load_catalog: Callable[[], Catalog]
    profile_folders: Callable[[], Sequence[Path]] = tuple
    """Watched for edits; the demo, whose profiles are no files, has none."""
    load_settings: Callable[[], Settings] | None = None
    """Reads the settings again, whose file is watched for edits too; the demo's come from no file."""
    guard: Guard | None = None
    """Watches the box's memory; the demo, whose memory is simulated, has none."""
    simulated: bool = False
    host: str = field(default_factory=socket.gethostname)
    """The box's name on the screens; the demo adds how many times faster than it says everything runs."""
    beside: tuple[Callable[[House], Awaitable[None]], ...] = ()
    """Further tasks that live as long as the daemon: the demo's traffic."""
    stop_engines: bool = False
    """End the engines with the daemon (the demo); otherwise the next daemon adopts them."""
    traffic: Callable[[bool], None] | None = None
    """Switches the demo's traffic; None when there is none."""
    traffic_on: bool | None = None
    """Is that traffic on at first? None when there is none."""


@dataclass
class House:
    """Everything that lives while the daemon serves."""

    parts: Parts
    bus: Bus
    supervisor: Supervisor
    server: listen.Server
    url: str
    """Root URL, without /v1."""
    watch: Watch
    rereading: Rereading | None
    """Of the settings; the demo's come from no file."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two readings of the files never overtake each other."""
    restarts: dict[str, int] = field(default_factory=dict)
    errands: set[asyncio.Task[None]] = field(default_factory=set)
    """What somebody asked for and the daemon does not wait for; ended with it."""


def run(load_settings: Callable[[], Settings]) -> None:
    """Serve until SIGTERM or SIGINT. Raises SparkdashError when it cannot begin, or when the supervisor crashed."""
    log.configure()
    faulthandler.enable()  # systemd's watchdog ends us with SIGABRT: the journal then says where the loop was stuck
    notifier, settings = notify.from_environment(), load_settings()
    parts = Parts(
        settings=settings,
        runtime=_runtime(settings),
        reader=BoxReader(),
        load_catalog=lambda: catalog.load(settings.profile_folders()),
        profile_folders=settings.profile_folders,
        load_settings=load_settings,
        guard=Guard(settings),
        beside=(lambda house: _attended(house, notifier),),
    )
    uvloop.run(serve(parts, ready=lambda _: _freeze()))


def _freeze() -> None:
    """What lives as long as the daemon is no longer looked through for garbage: that took 30 to 40 ms each time, in which
    nobody was answered."""
    gc.collect()
    gc.freeze()


def _runtime(settings: Settings) -> Runtime:
    if settings.runtime == "process":
        from sparkdash.host.process import Process

        return Process(paths.state_dir() / "processes")
    from sparkdash.host.podman import Podman

    return Podman(settings.runtime)


async def serve(parts: Parts, *, ready: Callable[[House], None] | None = None) -> None:
    """Bring everything up, serve, and take it down in the reverse order. `ready` is called once it answers."""
    folder, tls = paths.runtime_dir(), _tls(parts.settings)
    keys = _keys(parts.settings)
    with ExitStack() as held:
        # by state too: two daemons that differ only in where their sockets are would own the same engines
        places = dict.fromkeys(place.resolve() for place in (folder, paths.state_dir()))
        locks = [held.enter_context(listen.only_one(place)) for place in places]
        tcp = listen.bind_tcp(parts.settings.host, parts.settings.port)
        unix = listen.bind_unix(folder / listen.SOCKET_NAME)
        url = listen.root_url(tcp, tls)
        for lock in locks:
            lock.write(f"pid {os.getpid()}, {url}")
            lock.flush()
        try:
            await _serve(parts, _Door([tcp, unix], url, keys, tls), ready)
        finally:
            (folder / listen.SOCKET_NAME).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Door:
    """Where clients come in, and with what."""

    sockets: list[socket.socket]
    url: str
    keys: Keyring
    tls: listen.Tls | None


def _keys(settings: Settings) -> Keyring:
    """Raises ProfileError: there are none, and other boxes could come in; or the file of keys is no good."""
    keyring = Keyring(keyring_place())
    if not keyring.look() and settings.beyond_loopback:
        raise ProfileError(
            f"sparkdash would serve everybody who can reach {settings.host}: there are no keys yet.",
            code="keys_needed",
            hint="Make one with `sparkdash keys add NAME`, or stay on 127.0.0.1 and use `ssh -L` from elsewhere.",
        )
    if settings.beyond_loopback and settings.tls_cert is None:
        LOG.warning("keys and prompts cross the network in clear text", host=settings.host, mend="tls_cert and tls_key")
    return keyring


def _tls(settings: Settings) -> listen.Tls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    tls = listen.Tls(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    tls.check()
    return tls


async def _serve(parts: Parts, door: _Door, ready: Callable[[House], None] | None) -> None:
    beside = [settings_file()] if parts.load_settings else []
    watch = await asyncio.to_thread(Watch, parts.profile_folders, beside)
    profiles = await asyncio.to_thread(parts.load_catalog)
    bus = Bus(_first_snapshot(parts, door.url), time.time)
    async with (
        Upstream() as upstream,
        Store.opened(paths.state_dir() / "sparkdash.db", bus.publish) as store,
        Translator(paths.runtime_dir(), parts.settings.translator_idle_s, bus.publish) as translator,
    ):
        house = _build(parts, bus, profiles, upstream, store, door, watch, translator)
        _publish_profiles(house, profiles)
        try:
            await _live(house, upstream, door.sockets, ready)
        finally:
            await asyncio.shield(house.supervisor.close(stop_engines=parts.stop_engines))
            parts.reader.close()


def _build(
    parts: Parts,
    bus: Bus,
    profiles: Catalog,
    upstream: Upstream,
    store: Store,
    door: _Door,
    watch: Watch,
    translator: Translator,
) -> House:
    holder: list[House] = []
    supervisor = Supervisor(
        catalog=profiles,
        runtime=parts.runtime,
        upstream=upstream,
        reader=parts.reader,
        publish=bus.publish,
        settings=parts.settings,
        owner=paths.owner(),
        store=store,
        guard=parts.guard,
        on_needs=lambda: _publish_profiles(holder[0], supervisor.catalog),
    )
    deps = gateway.Deps(
        supervisor=supervisor,
        bus=bus,
        upstream=upstream,
        catalog=lambda: supervisor.catalog,
        settings=parts.settings,
        reload=lambda: _reload(holder[0]),
        refresh=lambda: _refresh(holder[0]),
        shutdown=lambda stop: _shutdown(holder[0], stop),
        traffic=parts.traffic,
        record=lambda request: _record(store, supervisor, request),
        keys=door.keys,
        used_today=lambda key: store.tokens_on(day_of(time.time()), key),
        audit=_written_down,
        capture=_capturing(parts.settings),
        examine=None if parts.simulated else lambda names: _examine(holder[0], names),
        runs=_runs,
        resume=lambda run: _resume(holder[0], run),
        translator=translator,
    )
    rereading = Rereading(parts.load_settings, bus.publish) if parts.load_settings else None
    server = listen.Server(gateway.build(deps).ready(), door.tls)
    house = House(parts, bus, supervisor, server, door.url, watch, rereading)
    holder.append(house)
    return house


def _capturing(settings: Settings) -> Callable[[Exchange, bytes, float], None] | None:
    if not settings.capture:
        return None
    kept = Capture(paths.state_dir())
    LOG.warning("what clients send is kept in a file, as `capture` in config.toml says", file=str(kept.path))
    return kept.keep


def _written_down(entry: Mapping[str, object]) -> None:
    try:
        audit.append(audit.place(), entry)
    except OSError as error:  # a full disk must not keep the owner from stopping an engine
        LOG.warning("the audit log cannot be written", why=error.strerror)


def _record(store: Store, supervisor: Supervisor, request: Request) -> None:
    store.record_request(request)
    supervisor.served(request)


async def _live(
    house: House, upstream: Upstream, sockets: list[socket.socket], ready: Callable[[House], None] | None
) -> None:
    collector = Collector(
        upstream=upstream,
        engines=lambda: house.supervisor.engines,
        reader=house.parts.reader,
        pids=house.supervisor.pids,
        strangers=house.supervisor.strangers,
        publish=house.bus.publish,
        settings=lambda: house.supervisor.settings,
        listeners=lambda: house.bus.listeners,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, house.server.stop)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(house.supervisor.run(), name="supervisor"),
            group.create_task(_kept_alive(house, "telemetry", collector.run), name="telemetry"),
            group.create_task(_kept_alive(house, "profiles", lambda: _watched(house)), name="profiles"),
            group.create_task(_farewell(house), name="farewell"),
            *(group.create_task(_awaited(task(house)), name="beside") for task in house.parts.beside),
        ]
        await house.supervisor.adopted()
        if ready is not None:
            loop.call_soon(ready, house)
        LOG.info("serving", url=f"{house.url}/v1", runtime=house.parts.runtime.name)
        await house.server.serve(sockets=sockets)
        for task in (*tasks, *house.errands):
            task.cancel()


async def _farewell(house: House) -> None:
    """When the daemon is told to end: who waits is told at once, who is served shortly before connections are cut."""
    await house.server.stopping()
    house.supervisor.retire(cut=False)
    await asyncio.sleep(FAREWELL_S)
    house.supervisor.retire(cut=True)


async def _attended(house: House, notifier: notify.Notifier) -> None:
    """systemd is told that the daemon serves once the engines of an earlier one are known."""
    await house.supervisor.adopted()
    await notifier.attend(house.server.stopping(), f"serving {house.url}/v1 with {house.parts.runtime.name}")


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _kept_alive(house: House, name: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except Exception as error:
            count = house.restarts[name] = house.restarts.get(name, 0) + 1
            LOG.exception("a part crashed and is started again", part=name, restarts=count)
            text = f"{name} crashed ({type(error).__name__}) and was started again; restart {count}."
            house.bus.publish(Notice(level=Level.ERROR, code=f"{name}_restarted", text=text))
            await asyncio.sleep(RESTART_S[min(count, len(RESTART_S)) - 1])
        else:
            return


async def _reload(house: House) -> None:
    async with house.reading:
        await _read(house)


async def _refresh(house: House) -> None:
    """Read the profiles and the settings again if a file was edited since the last look."""
    async with house.reading:
        if await asyncio.to_thread(house.watch.changed):
            await _read(house)


async def _read(house: House) -> None:
    if house.rereading and (settings := await house.rereading.read(house.supervisor.settings)):
        house.supervisor.replace_settings(settings)
    read = await asyncio.to_thread(house.parts.load_catalog)
    profiles = keeping(house.supervisor.catalog, read)
    house.supervisor.replace_catalog(profiles)
    _publish_profiles(house, profiles)


async def _watched(house: House) -> None:
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(house.bus.watched.wait(), LOOK_S[1])
            await asyncio.sleep(LOOK_S[0])
        await _refresh(house)


async def _runs(run: str | None) -> bytes:
    await asyncio.to_thread(import_module, "sparkdash.bench.asked")  # the same
    from sparkdash.bench.asked import asked

    return await asked(run)


def _resume(house: House, run: str) -> None:
    async def going_on() -> None:
        from sparkdash.bench.asked import resumed

        if why := await resumed(run):
            text = f"{run} did not go on. {why}"
            house.bus.publish(Notice(level=Level.WARNING, code="bench_failed", text=text))

    task = asyncio.create_task(going_on(), name=f"bench resume {run}")
    house.errands.add(task)
    task.add_done_callback(house.errands.discard)


async def _examine(house: House, names: Sequence[str]) -> Diagnosis:
    await asyncio.to_thread(import_module, "sparkdash.doctor")  # rarely asked for, and 30 ms that nobody else waits for
    from sparkdash import doctor
    from sparkdash.doctor.facts import DaemonSeen

    world, settings = house.bus.snapshot, house.supervisor.settings
    low_power = world.sample is not None and world.sample.low_power
    seen = DaemonSeen(house.url, __version__, os.getpid(), f"{house.url}/v1", house.parts.runtime.name, low_power)
    return Diagnosis(findings=await doctor.examine(doctor.Probe(settings=settings, daemon=seen), names))


async def _shutdown(house: House, stop_engines: bool) -> None:
    try:
        if stop_engines:
            await house.supervisor.stop(None)
    except SparkdashError as error:  # the next daemon finds what would not stop
        LOG.warning("an engine is left behind", code=error.code, why=error.text())
    finally:
        house.server.stop()


def _publish_profiles(house: House, profiles: Catalog) -> None:
    need, now = house.supervisor.need, house.bus.snapshot
    listed = tuple(catalog.summary(p, registry.adapter(p.engine), need(p)) for p in profiles.profiles.values())
    problems = tuple(str(problem) for problem in profiles.problems)
    if (listed, problems) != (now.profiles, now.problems):
        house.bus.publish(ProfilesChanged(profiles=listed, problems=problems))


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


def told_why(error: BaseException) -> SparkdashError | None:
    """The first expected error inside an exception group, for the command line."""
    if isinstance(error, SparkdashError):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [told_why(inner) for inner in error.exceptions]
        return next((e for e in found if e), None)
    return None
