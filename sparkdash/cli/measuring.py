"""Measuring from the command line: the plan, the question whether to begin, the bar, the table at the end.

Owns: how `bench`, `ab` and `bench resume` put the bench's parts together. Must not know: how anything is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import uvloop

from sparkdash import paths
from sparkdash.bench import folder, hold, judgement, plan, stand, suites, sweep
from sparkdash.bench.metrics import Metric
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Host, Mode, Run
from sparkdash.bench.runner import Runner
from sparkdash.bench.wire import Wire
from sparkdash.cli import bench_reports, bench_words
from sparkdash.cli.screen import emit, interactive, tell
from sparkdash.client.address import credentials
from sparkdash.client.client import AsyncClient
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, SparkdashError, UpstreamError


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line."""

    arms: tuple[str, ...]
    suite: str
    mode: Mode
    model: str | None = None
    direct: bool = False
    share: bool = False
    reps: int | None = None
    seed: int = plan.SEED
    fresh: bool = False
    ask: bool = True
    as_json: bool = False
    calibrates: bool = False
    sweep: str | None = None


def measure(wish: Wish) -> None:
    """Plan, ask, measure, print. Raises SparkdashError."""
    _run_to_end(_measure(wish))


def go_on(name: str, *, share: bool, ask: bool, as_json: bool) -> None:
    """Fill the gaps of a run. Raises SparkdashError."""
    _run_to_end(_go_on(folder.find(name), share=share, ask=ask, as_json=as_json))


def _run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """One that was asked from elsewhere to stop ends as with Ctrl-C."""
    try:
        uvloop.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _measure(wish: Wish) -> None:
    suite = suites.load(wish.suite)
    foreign = ["://" in name for name in wish.arms]
    if any(foreign) and not all(foreign):
        raise typer.BadParameter("give profiles or URLs, not both", param_hint="PROFILES")
    async with _daemon(managed=not foreign[0]) as client:
        swept = await _swept(client, wish) if client and wish.sweep else ()
        try:
            await _begun(client, suite, swept, wish, foreign[0])
        finally:
            if swept and _begun_with(swept) is None:
                await _tidied(client, swept)


async def _begun(
    client: AsyncClient | None, suite: suites.Suite, swept: tuple[Arm, ...], wish: Wish, foreign: bool
) -> None:
    world = await client.state() if client else None
    names = [(await client.profile(name)).name if client else name for name in wish.arms]
    arms = swept or plan.arms_of(names, {one.name: one for one in world.profiles} if world else {})
    simulated = any(one.simulated for one in world.profiles if one.name in names) if world else False
    run = plan.new_run(
        suite, arms, wish.mode,
        seed=wish.seed, reps=wish.reps, host=_host(world), model=wish.model,
        target="url" if foreign else "direct" if wish.direct else "gateway",
        simulated=simulated, noise=folder.calibrated(simulated=simulated),
    )  # fmt: skip
    place = None if wish.fresh else _stopped(run)
    if place is not None:
        tell(f"Going on with {place.name}, which was stopped. --fresh begins anew.")
    await _work(folder.read(place) if place else Results(run=run), client, world, suite, wish)


async def _swept(client: AsyncClient, wish: Wish) -> tuple[Arm, ...]:
    """The sweep's profiles, in a file of their own among the owner's, which the daemon reads."""
    from sparkdash.catalog import yaml_writer

    asked = sweep.parse(wish.sweep or "")
    profile = await client.profile(wish.arms[0])
    file = _sweep_file(asked.family(profile))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml_writer.dump(asked.document(profile)), encoding="utf-8")
    problems = [one for one in (await client.reload()).problems if file.name in one]
    if problems:
        file.unlink()
        raise AdmissionError(f"The profile cannot be swept so: {problems[0]}", code="sweep_invalid")
    return asked.arms(profile)


def _sweep_file(family: str) -> Path:
    return paths.config_dir() / "profiles" / f"{family}.yaml"


async def _tidied(client: AsyncClient | None, arms: Sequence[Arm]) -> None:
    """A sweep's profiles go when nothing of it is missing, or when it never began."""
    files = {_sweep_file(arm.profile.split("/", 1)[0]) for arm in arms if arm.parameters}
    there = [file for file in files if file.exists()]
    for file in there:
        file.unlink()
    if there and client is not None:
        await client.reload()


def _begun_with(arms: Sequence[Arm]) -> Path | None:
    """The newest run of these arms that still lacks something: it wants their profiles."""
    for place in folder.runs():
        with contextlib.suppress(AdmissionError):
            run = folder.read_run(place)
            if run.ended_at is None and any(arm in arms for arm in run.arms):
                return place
    return None


async def _go_on(place: Path, *, share: bool, ask: bool, as_json: bool) -> None:
    run = folder.read_run(place)
    try:
        suite = suites.load(run.suite)
    except AdmissionError as error:
        error.hint = "It was a file of its own: give the same command again, with --suite FILE."
        raise
    if suite.hash != run.suite_hash:
        raise AdmissionError(
            f"The suite {run.suite} is no longer what {run.id} began with.",
            code="suite_changed",
            status=409,
            hint="Begin a new run.",
        )
    wish = Wish(tuple(arm.profile for arm in run.arms), run.suite, run.mode, share=share, ask=ask, as_json=as_json)
    async with _daemon(managed=run.target != "url") as client:
        await _work(folder.read(place), client, await client.state() if client else None, suite, wish)


async def _work(
    results: Results, client: AsyncClient | None, world: Snapshot | None, suite: suites.Suite, wish: Wish
) -> None:
    """Say what is missing, ask, and measure it; a new run has a folder from the moment that it begins."""
    place = folder.bench_dir() / results.run.id
    run, gaps = results.run, results.gaps()
    speeds = await _speeds(run, client, world)
    expected = plan.expected_s(gaps, speeds)
    if gaps:
        bench_words.announce(results, suite, speeds, expected, world)
        if wish.ask and interactive() and not _agreed():
            raise typer.Abort
        if not place.exists():
            folder.create(run)
        results = await _run(place, run, client, world, suite, wish, expected)
    if not results.gaps():
        await _tidied(client, run.arms)
    noise = judgement.calibration(results) if wish.calibrates and not results.gaps() else {}
    if noise:
        folder.keep_calibration(run, noise)
    if wish.as_json:
        emit(_as_json(results, place))
        return
    bench_reports.show(place.name)
    if wish.calibrates:
        typer.echo(bench_words.noise_of(noise))
    if missing := results.gaps():
        tell(f"{len(missing)} cell(s) are missing; the same command measures them. See `sparkdash bench list`.")
    tell(f"Kept in {place}")


def _agreed() -> bool:
    """The person's answer. Ctrl-C is a no: the loop's own handler would keep it for later, and the question would stand."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm("Begin?", err=True)
    except typer.Abort:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


async def _run(
    place: Path,
    run: Run,
    client: AsyncClient | None,
    world: Snapshot | None,
    suite: suites.Suite,
    wish: Wish,
    expected_s: float | None,
) -> Results:
    bar = bench_words.Bar(run)
    headers = stand.headers()
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(await _wire(client, world, run, headers))
        here: stand.Stand = stand.Foreign(wire, run.model)
        if client is not None:
            here = stand.Managed(client, wire, direct=run.target == "direct")
        watch = bench_words.Watch(run, bar)
        runner = Runner(place, here, watch.show, lag_limit_ms=suite.lag_limit_ms, chats=suite.chats)
        if client is not None and not wish.share:
            pulse = hold.Pulse(
                expected_s=lambda: runner.left_s if runner.left_s is not None else expected_s,
                measuring=lambda: watch.measuring,
                ends=_ending(),
            )
            watch.news = pulse.news.set
            await stack.enter_async_context(hold.holding(client, f"sparkdash bench ({run.suite})", headers, pulse))
        if client is not None and world is not None:
            stack.push_async_callback(_brought_back, client, world)
        try:
            return await runner.run()
        except asyncio.CancelledError:
            bar.clear()
            tell("Stopped. What is measured is kept; the same command goes on.")
            raise
        finally:
            bar.clear()


def _ending() -> Callable[[], None]:
    """Ends this task as Ctrl-C would."""
    main = asyncio.current_task()

    def end() -> None:
        if main is not None:
            main.cancel()

    return end


async def _brought_back(client: AsyncClient, before: Snapshot) -> None:
    """What served before the run serves again after it, also when the run was stopped."""
    if before.active is None:
        return
    with contextlib.suppress(SparkdashError):
        now = await client.state()
        if now.active is None or now.active.profile != before.active.profile:
            await client.use(before.active.profile)


@asynccontextmanager
async def _daemon(*, managed: bool) -> AsyncIterator[AsyncClient | None]:
    if not managed:
        yield None
        return
    async with AsyncClient() as client:
        yield client


async def _wire(client: AsyncClient | None, world: Snapshot | None, run: Run, headers: dict[str, str]) -> Wire:
    """To the gateway, over TCP as its clients come: there the kernel tells when bytes came. Where it lets nobody in
    without a key, as our commands reach it; a key goes nowhere else."""
    if client is None or world is None or run.target != "gateway":
        return Wire("", headers)
    address = client.address
    if address.uds is not None:
        root = world.daemon.url.removesuffix("/v1")
        async with Wire(root, headers) as wire:
            with contextlib.suppress(UpstreamError):
                await wire.get("/v1/models")
                return Wire(root, headers)
    headers |= credentials(address)
    return Wire(address.url, headers, address.uds)


def _stopped(run: Run) -> Path | None:
    """The newest run of the same question that was not finished."""
    for place in folder.runs():
        with contextlib.suppress(AdmissionError):
            other = folder.read_run(place)
            if other.ended_at is None and plan.same_question(other, run):
                return place
    return None


def _host(world: Snapshot | None) -> Host:
    if world is None:
        return Host()
    gpu = world.sample.gpu if world.sample else None
    memory = world.sample.memory if world.sample else None
    return Host(
        name=world.daemon.host,
        gpu=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        memory_bytes=memory.total if memory else None,
    )


async def _speeds(run: Run, client: AsyncClient | None, world: Snapshot | None) -> dict[str, plan.Speeds]:
    if client is None or world is None:
        return {}
    starts: dict[str, float | None] = {}
    for name in {arm.profile for arm in run.arms if arm.impossible is None}:
        seen = world.figures.get(name)
        starts[name] = (seen.load_s if seen else None) or (await client.plan(name)).expected_s or None
    return plan.speeds_of(run.arms, world, starts)


def _as_json(results: Results, place: Path) -> dict[str, Any]:
    return {
        "run": results.run,
        "folder": str(place),
        "missing": results.gaps(),
        "rows": {metric.value: judgement.rows(results, metric) for metric in Metric},
        "overall": judgement.overall(results) if len(results.run.arms) > 1 else (),
        "void": sum(one.void is not None for one in results.samples),
    }
