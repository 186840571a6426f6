"""Provenance of a launch, asked of the daemon, the engine and podman.

Owns: the provenance of a launch. Must not know: what is measured.
Rule: unknown is None. Requested values never replace those that the engine reports.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from sparkdash import paths
from sparkdash.bench.measure.measured_engine import MeasuredEngine
from sparkdash.bench.measure.url_server import UrlServer
from sparkdash.bench.records import Provenance
from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import Gpu
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import SparkdashError
from sparkdash.host import command
from sparkdash.host.flag_store import FlagStore
from sparkdash.redaction import masked_command

DIGEST_S = 5.0


async def profile_provenance(
    profile: Profile, engine: Engine, world: Snapshot, measured: MeasuredEngine, log: Sequence[str]
) -> Provenance:
    """Return the provenance of a profile that the daemon has started. `log` has the lines of this start."""
    here = world.daemon.host == platform.node()
    gpu = (world.sample.gpu if world.sample else None) or Gpu()
    memory = world.sample.memory if world.sample else None
    target = profile.models.get("target")
    return Provenance(
        profile=profile.name,
        fingerprint=engine.fingerprint,
        argv=_argv(profile, engine, world),
        image=profile.image,
        image_digest=await _digest(world.daemon.runtime, profile.image) if here else None,
        engine=profile.engine.value,
        request_keys=measured.keys.value if measured.keys else None,
        engine_version=engine.version or await measured.version(),
        model=target.ref if target else None,
        model_revision=target.revision if target else None,
        tokenizer_sha256=await measured.tokenizer(),
        kv_dtype=adapter_of(profile).kv_dtype(log) or await measured.kv_dtype(),
        kv_tokens=await measured.kv_tokens(),
        context_limit=await measured.context_limit(),
        thinking=_thinking(profile),
        temperature=0.0,
        speculation=adapter_of(profile).speculation(profile),
        driver=gpu.driver,
        kernel=platform.release() if here else None,
        clock_mhz=gpu.sm_clock_mhz,
        temperature_c=gpu.temperature_c,
        available_bytes=memory.available if memory else None,
        startup_s=engine.load_s,
    )


def _thinking(profile: Profile) -> bool | None:
    """Return the profile's switch of the chat template; None without it."""
    template = profile.request.get("chat_template_kwargs")
    switch = template.get("enable_thinking") if isinstance(template, dict) else None
    return switch if isinstance(switch, bool) else None


async def server_provenance(url: str, measured: MeasuredEngine, server: UrlServer) -> Provenance:
    """Return what an unmanaged server reports."""
    return Provenance(
        profile=url,
        temperature=0.0,
        engine=None if measured.kind.is_external else measured.kind.value,
        engine_version=await measured.version(),
        request_keys=server.keys.value if server.keys else None,
        model=measured.model,
        tokenizer_sha256=await measured.tokenizer(),
        kv_dtype=await measured.kv_dtype(),
        kv_tokens=await measured.kv_tokens(),
        context_limit=await measured.context_limit(),
    )


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
    """Return the program and its arguments, as the daemon's adapter builds them from the profile."""
    containerised = world.daemon.runtime != "process"
    launch = LaunchContext(
        port=engine.port or 0, containerised=containerised, hf_home="~/.cache/huggingface",
        cache_dir="~/.cache/sparkdash", flags=FlagStore(paths.flags_dir()).of(profile, containerised=containerised),
    )  # fmt: skip
    try:
        spec = adapter_of(profile).container(profile, launch)
    except SparkdashError:
        return ()
    return masked_command(spec.argv)
