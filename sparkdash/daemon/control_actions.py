"""Control requests that concern no engine: bench, doctor, memory, inventory, shutdown."""

import asyncio
import os
import platform
from collections.abc import Sequence
from importlib import import_module

from sparkdash import __version__, paths
from sparkdash.api.answers import BenchPlan, SettingList
from sparkdash.api.requests import SettingBody, StartRunBody
from sparkdash.daemon import config_file, reloading
from sparkdash.daemon.daemon import Daemon
from sparkdash.domain.event import Level, Notice
from sparkdash.domain.images import Inventory, Item, NodeStock, Stock
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.node import Diagnosis, Finding
from sparkdash.domain.profile import ProfileSummary
from sparkdash.errors import SparkdashError
from sparkdash.host.inventory import Image, stock_of
from sparkdash.host.local_weights import Presence
from sparkdash.host.memory.account import Sources, account_for_memory
from sparkdash.log import LOG
from sparkdash.nodes.shipping.shipper import stock_of_nodes
from sparkdash.settings import settings_file


async def bench_runs(run: str | None, *, simulated: bool) -> bytes:
    """Return all measured runs, or the report of one, as JSON, made by a process of its own."""
    # rarely needed, and the loop must not wait for it
    await asyncio.to_thread(import_module, "sparkdash.bench.processes")
    from sparkdash.bench.processes import read_report_json

    return await read_report_json(run, simulated=simulated)


async def resume_bench_run(daemon: Daemon, run: str) -> None:
    """Resume a run in a process of its own; a Notice reports failure. Raises AdmissionError."""
    from sparkdash.bench.processes import require_run, resume_run

    await require_run(run)

    async def going_on() -> None:
        if why := await resume_run(run):
            text = f"{run} was not resumed. {why}"
            daemon.bus.publish(Notice(level=Level.WARNING, code="bench_failed", text=text))

    daemon.in_background(going_on(), f"bench resume {run}")


async def start_bench_run(daemon: Daemon, wish: StartRunBody) -> BenchPlan:
    """Plan a run, and measure it in a process of its own; a Notice reports failure. Raises SparkdashError."""
    from sparkdash.bench.processes import plan_run, start_run

    plan = await plan_run(wish)
    if not wish.begin:
        return plan

    async def measured() -> None:
        if why := await start_run(wish):
            text = f"The run of {' and '.join(wish.profiles)} ended early. {why}"
            daemon.bus.publish(Notice(level=Level.WARNING, code="bench_failed", text=text))

    daemon.in_background(measured(), f"bench {wish.suite}")
    return BenchPlan(**{**dict(plan), "begun": True})


async def settings_list(daemon: Daemon) -> SettingList:
    in_force, read = daemon.supervisor.settings, daemon.parts.load_settings
    return await asyncio.to_thread(config_file.list_settings, settings_file(), in_force, read)


async def change_setting(daemon: Daemon, wish: SettingBody) -> SettingList:
    """Change one setting in config.toml, and apply what holds at once. Raises SparkdashError."""
    await asyncio.to_thread(config_file.change_setting, settings_file(), wish.key, wish.value)
    await reloading.reread_settings(daemon)
    return await settings_list(daemon)


async def run_doctor(daemon: Daemon, names: Sequence[str]) -> Diagnosis:
    """Run the doctor's checks on this box and the nodes; all of them without `names`."""
    # 30 ms, rarely needed, and the loop must not wait
    await asyncio.to_thread(import_module, "sparkdash.doctor.nodes.examine")
    from sparkdash import doctor
    from sparkdash.doctor.check import DaemonSeen
    from sparkdash.doctor.nodes.examine import examine_all, with_node_names

    world, settings = daemon.bus.snapshot, daemon.supervisor.settings
    low_power = world.sample is not None and world.sample.low_power
    seen = DaemonSeen(daemon.url, __version__, os.getpid(), f"{daemon.url}/v1", daemon.parts.runtime.name, low_power)
    probe = doctor.Probe(settings=settings, daemon=seen, account=lambda _: memory_of_box(daemon))
    here, of_nodes = await examine_all(probe, names)
    named = with_node_names(of_nodes, platform.node())
    return Diagnosis(findings=(*here, *(Finding(**each.model_dump(exclude={"nodes"})) for each in named)))


async def memory_of_box(daemon: Daemon) -> MemoryAccount:
    """Account for all memory of the box by holder. Raises HostError."""
    runtime, gpu = daemon.parts.runtime, daemon.parts.reader.gpu
    return await account_for_memory(
        Sources(runtime=runtime, gpu=gpu, owner=paths.owner(), engines=daemon.collector.pids)
    )


async def stock_of_profiles(daemon: Daemon, profiles: Sequence[ProfileSummary]) -> Inventory:
    """List images and weights of these profiles on this box and its nodes; simulated profiles are left out."""
    hf_home, real = daemon.supervisor.settings.hf_home.expanduser(), [one for one in profiles if not one.simulated]
    here, there = await asyncio.gather(
        stock_of(real, daemon.parts.runtime, hf_home),
        stock_of_nodes(daemon.others.directory, real) if daemon.others else _nothing(),
    )
    return Inventory(
        stock={
            name: Stock(image=_item(one.image), weights=_item(one.weights), nodes=there.get(name, {}))
            for name, one in here.items()
        }
    )


async def _nothing() -> dict[str, dict[str, NodeStock]]:
    return {}


def _item(one: Image | Presence | None) -> Item | None:
    return Item(here=one.here, size=one.size) if one else None


async def shutdown(daemon: Daemon, stop_engines: bool) -> None:
    """End the daemon, even if an engine does not stop."""
    try:
        if stop_engines:
            await daemon.supervisor.stop(None)
    except SparkdashError as error:  # the next daemon finds what would not stop
        LOG.warning("an engine is left behind", code=error.code, why=error.text())
    finally:
        daemon.server.stop()
