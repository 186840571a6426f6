"""Launcher of arms: starts an engine through the daemon, and notes what really ran."""

import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from sparkdash import __version__
from sparkdash.bench.measure import measured_engine
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.measured_engine import MeasuredEngine
from sparkdash.bench.measure.voids import BoxReading
from sparkdash.bench.results import Provenance
from sparkdash.bench.run import Arm
from sparkdash.catalog.catalog import replica_names
from sparkdash.client.client import AsyncClient
from sparkdash.client.follow import until_ready, until_stopped
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.metric import Gpu, Memory, NodeSample, Sample
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter, adapter_of
from sparkdash.errors import SparkdashError
from sparkdash.host import command
from sparkdash.redaction import masked_command

DIGEST_S = 5.0


async def profile_provenance(
    profile: Profile, engine: Engine, world: Snapshot, measured: MeasuredEngine, log: Sequence[str]
) -> Provenance:
    node = engine.nodes[0]
    here = node == LOCAL and world.daemon.host == platform.node()
    box = _boxes(world.sample).get(node) or NodeSample(at=0.0)
    facts = world.nodes[node].facts if node in world.nodes else None
    gpu, memory = box.gpu or Gpu(), box.memory
    target = profile.models.get("target")
    return Provenance(
        profile=profile.name,
        fingerprint=engine.fingerprint,
        argv=_argv(profile, engine, world),
        image=profile.image,
        image_digest=await _digest(world.daemon.runtime, profile.image) if here else None,
        engine=profile.engine.value,
        engine_version=engine.version or await measured.version(),
        model=target.ref if target else None,
        model_revision=target.revision if target else None,
        tokenizer_sha256=await measured.tokenizer(),
        kv_dtype=adapter_of(profile).kv_dtype(log) or await measured.kv_dtype(),
        kv_tokens=await measured.kv_tokens(),
        weights_gib=adapter_of(profile).loaded_gib(log),
        context_limit=await measured.context_limit(),
        thinking=is_thinking(profile),
        temperature=0.0,
        speculation=adapter_of(profile).speculation(profile),
        driver=gpu.driver,
        kernel=platform.release() if here else facts and facts.kernel,
        clock_mhz=gpu.sm_clock_mhz,
        temperature_c=gpu.temperature_c,
        available_bytes=memory.available if memory else None,
        startup_s=engine.load_s,
    )


def is_thinking(profile: Profile) -> bool | None:
    """Whether the profile's requests turn thinking on or off; None: the model's template decides."""
    template = {**profile.request, **profile.request_set}.get("chat_template_kwargs")
    words = template if isinstance(template, dict) else {}
    told = (words.get(word) for word in ("enable_thinking", "thinking", "thinking_mode"))  # Qwen, DeepSeek, MiniMax-M3
    switches = ({"enabled": True, "disabled": False}.get(said) if isinstance(said, str) else said for said in told)
    return next((switch for switch in switches if isinstance(switch, bool)), None)


async def _digest(runtime: str, image: str | None) -> str | None:
    """Return the image's digest, or its id when it was built here and never pushed."""
    if image is None or runtime not in ("podman", "docker"):
        return None
    argv = (runtime, "image", "inspect", "--format", "{{if .Digest}}{{.Digest}}{{else}}{{.Id}}{{end}}", image)
    if runtime == "docker":
        argv = (*argv[:4], "{{if .RepoDigests}}{{index .RepoDigests 0}}{{else}}{{.Id}}{{end}}", image)
    try:
        done = await command.run_command(argv, deadline_s=DIGEST_S)
    except (TimeoutError, OSError):
        return None
    return done.out.strip() or None if done.code == 0 else None


def _argv(profile: Profile, engine: Engine, world: Snapshot) -> tuple[str, ...]:
    containerised = world.daemon.runtime != "process"
    launch = LaunchContext(
        port=engine.port or 0, containerised=containerised, hf_home="~/.cache/huggingface",
        cache_dir="~/.cache/sparkdash",
    )  # fmt: skip
    try:
        spec = adapter_of(profile).launched(profile, launch)
    except SparkdashError:
        return ()
    return masked_command(spec.argv)


LOG_LINES = 20_000
"""Upper bound of the lines that an engine writes until it is ready."""
AGENT = "sparkdash-bench"
"""User-Agent that separates the bench's requests from others'."""
ShowSnapshot = Callable[[Snapshot], None]


@dataclass(slots=True)
class LaunchedArm:
    """Arm whose engine answers, ready to be measured."""

    measured: MeasuredEngine
    provenance: Provenance
    look: Callable[[], Awaitable[BoxReading]]


class ArmLauncher(Protocol):
    """Starts the engine of an arm."""

    async def launch(self, arm: Arm, show: ShowSnapshot) -> LaunchedArm: ...


class DaemonLauncher:
    """Launches profiles through a daemon."""

    def __init__(self, client: AsyncClient, bench_client: BenchClient) -> None:
        self._client = client
        self._bench_client = bench_client

    async def launch(self, arm: Arm, show: ShowSnapshot) -> LaunchedArm:
        """Stop whatever runs and start the arm's engine, with its replicas, in new processes."""
        world = await self._client.state()
        running = {name for name, engine in world.engines.items() if _is_ours(engine)}
        if running:
            await until_stopped(self._client, None, show)
        profile = await self._client.profile(name=arm.profile)
        names = replica_names((one.name for one in world.profiles), profile.name)  # the gateway spreads over them
        for name in names:
            world = await until_ready(self._client, name, show, "bench")
        engine = world.engines[profile.name]
        measured = MeasuredEngine(
            client=self._bench_client,
            kind=profile.engine,
            model=profile.name,
            engine_url=engine.url,
            defaults=profile.request,
        )
        if adapter(profile.engine).owned_by is None:  # any engine may be behind it
            measured.keys = await measured_engine.attached_keys(self._bench_client, measured.model, engine.url)
        found = await profile_provenance(profile, engine, world, measured, await self._log(profile.name))
        observer = _BoxObserver(self._client, names)
        return LaunchedArm(measured, found, observer.look)

    async def _log(self, profile: str) -> Sequence[str]:
        try:
            async with aclosing(self._client.logs(name=profile, tail=LOG_LINES)) as chunks:
                return "".join([chunk async for chunk in chunks]).splitlines()
        except SparkdashError:
            return ()


class _BoxObserver:
    def __init__(self, client: AsyncClient, names: Sequence[str]) -> None:
        self._client = client
        self._names = names

    async def look(self) -> BoxReading:
        try:
            world = await self._client.state()
        except SparkdashError:
            return BoxReading()
        engines = [world.engines[name] for name in self._names if name in world.engines]
        return replace(
            read_boxes(world.sample, [engine.nodes for engine in engines]),
            engine=tuple((engine.container, engine.port, engine.ready_at) for engine in engines) or None,
        )


def read_boxes(sample: Sample | None, engines: Sequence[tuple[str, ...]]) -> BoxReading:
    """Read the boxes of these engines."""
    if sample is None:
        return BoxReading()
    names = {*chain(*engines)}
    boxes = {name: box for name, box in _boxes(sample).items() if name in names}
    gpus = {name: box.gpu or Gpu() for name, box in boxes.items()}
    memories = [box.memory or Memory(total=0, available=0, free=0) for box in boxes.values()]
    return BoxReading(
        at=sample.at,
        clock_mhz=_clock(gpus, engines),
        temperature_c=max((gpu.temperature_c or 0 for gpu in gpus.values()), default=0) or None,
        swap_used=sum(memory.swap_used or 0 for memory in memories),
        available_bytes=min((memory.available for memory in memories), default=None),
        low_power=sample.low_power and LOCAL in names,
    )


def _clock(gpus: Mapping[str, Gpu], engines: Sequence[tuple[str, ...]]) -> float | None:
    """Return the clock of the fastest engine's slowest box, as others may rest."""
    clocks = ([gpus[name].sm_clock_mhz or 0 for name in nodes if name in gpus] for nodes in engines)
    return max((min(each) for each in clocks if each), default=0) or None


def _boxes(sample: Sample | None) -> dict[str, NodeSample]:
    if sample is None:
        return {}
    return sample.nodes | {LOCAL: NodeSample(at=sample.at, memory=sample.memory, gpu=sample.gpu)}


def bench_headers() -> dict[str, str]:
    return {"User-Agent": f"{AGENT}/{__version__}"}


def _is_ours(engine: Engine) -> bool:
    return engine.state not in (EngineState.FAILED, EngineState.ABSENT) and adapter(engine.kind).managed
