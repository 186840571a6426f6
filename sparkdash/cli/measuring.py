"""Measuring from the command line: the plan, the question whether to begin, the bar, the table at the end.

Owns: how `bench`, `ab` and `bench resume` put the bench's parts together. Must not know: how anything is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sparkdash import paths
from sparkdash.bench import folder, hold, judgement, plan, stand, suites, sweep
from sparkdash.bench.compare import Noise
from sparkdash.bench.metrics import Metric
from sparkdash.bench.results import Arm, CellKey, Host, Kind, Mode, Results, Run
from sparkdash.bench.runner import Runner, Step
from sparkdash.bench.wire import Wire
from sparkdash.cli import bench_reports
from sparkdash.cli.screen import LiveLine, emit, interactive, tell
from sparkdash.client.address import credentials
from sparkdash.client.client import AsyncClient
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.units import duration

BAR = 20
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
    asyncio.run(_measure(wish))


def go_on(name: str, *, share: bool, ask: bool, as_json: bool) -> None:
    """Fill the gaps of a run. Raises SparkdashError."""
    asyncio.run(_go_on(folder.find(name), share=share, ask=ask, as_json=as_json))


async def _measure(wish: Wish) -> None:
    suite = suites.load(wish.suite)
    foreign = ["://" in name for name in wish.arms]
    if any(foreign) and not all(foreign):
        raise typer.BadParameter("give profiles or URLs, not both", param_hint="PROFILES")
    async with _daemon(managed=not foreign[0]) as client:
        swept = await _swept(client, wish) if client and wish.sweep else ()
        world = await client.state() if client else None
        names = [(await client.profile(name)).name if client else name for name in wish.arms]
        arms = swept or plan.arms_of(names, {one.name: one for one in world.profiles} if world else {})
        simulated = any(one.simulated for one in world.profiles if one.name in names) if world else False
        run = plan.new_run(
            suite, arms, wish.mode,
            seed=wish.seed, reps=wish.reps, host=_host(world),
            target="url" if foreign[0] else "direct" if wish.direct else "gateway",
            simulated=simulated, noise=folder.calibrated(simulated=simulated),
        )  # fmt: skip
        place = None if wish.fresh else _stopped(run)
        if place is not None:
            tell(f"Going on with {place.name}, which was stopped. --fresh begins anew.")
        else:
            place = folder.create(run)
        await _work(place, client, world, suite, wish)


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


async def _tidied(client: AsyncClient | None, run: Run) -> None:
    """A sweep's profiles go when nothing of it is missing."""
    families = {arm.profile.split("/", 1)[0] for arm in run.arms if arm.parameters}
    for family in families:
        _sweep_file(family).unlink(missing_ok=True)
    if families and client is not None:
        await client.reload()


async def _go_on(place: Path, *, share: bool, ask: bool, as_json: bool) -> None:
    run = folder.read_run(place)
    suite = suites.load(run.suite)
    if suite.hash != run.suite_hash:
        raise AdmissionError(
            f"The suite {run.suite} is no longer what {run.id} began with.",
            code="suite_changed",
            status=409,
            hint="Begin a new run.",
        )
    wish = Wish(tuple(arm.profile for arm in run.arms), run.suite, run.mode, share=share, ask=ask, as_json=as_json)
    async with _daemon(managed=run.target != "url") as client:
        await _work(place, client, await client.state() if client else None, suite, wish)


async def _work(
    place: Path, client: AsyncClient | None, world: Snapshot | None, suite: suites.Suite, wish: Wish
) -> None:
    """Say what is missing, ask, and measure it."""
    results = folder.read(place)
    run, gaps = results.run, results.gaps()
    speeds = await _speeds(run, client, world)
    expected = plan.expected_s(gaps, speeds)
    if gaps:
        _announce(results, suite, speeds, expected, world)
        if wish.ask and interactive():
            typer.confirm("Begin?", abort=True, err=True)
        results = await _run(place, run, client, world, suite, wish, expected)
    if not results.gaps():
        await _tidied(client, run)
    noise = judgement.calibration(results) if wish.calibrates and not results.gaps() else {}
    if noise:
        folder.keep_calibration(run, noise)
    if wish.as_json:
        emit(_as_json(results, place))
        return
    bench_reports.show(place.name)
    if wish.calibrates:
        typer.echo(_noise(noise))
    if any(arm.parameters for arm in run.arms):
        typer.echo("\n".join(["", "The fastest, by decode:", *sweep.advice(results)]))
    if missing := results.gaps():
        tell(f"{len(missing)} cell(s) are missing; the same command measures them. See `sparkdash bench list`.")
    tell(f"Kept in {place}")


async def _run(
    place: Path,
    run: Run,
    client: AsyncClient | None,
    world: Snapshot | None,
    suite: suites.Suite,
    wish: Wish,
    expected_s: float | None,
) -> Results:
    bar = _Bar(run)
    headers = stand.headers()
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(_wire(client, run, headers))
        here: stand.Stand = stand.Foreign(wire, wish.model)
        if client is not None:
            here = stand.Managed(client, wire, direct=run.target == "direct")
        runner = Runner(place, here, bar.show, lag_limit_ms=suite.lag_limit_ms)
        if client is not None and not wish.share:
            who = f"sparkdash bench ({run.suite})"
            left = lambda: runner.left_s if runner.left_s is not None else expected_s  # noqa: E731 - read as it is now
            await stack.enter_async_context(hold.holding(client, who, headers, left))
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


def _wire(client: AsyncClient | None, run: Run, headers: dict[str, str]) -> Wire:
    """To the gateway, as the client reaches it; a key goes nowhere else."""
    if client is None or run.target != "gateway":
        return Wire("", headers)
    headers |= credentials(client.address)
    return Wire(client.address.url, headers, client.address.uds)


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


# --- words ------------------------------------------------------------------------------------------------------


def _announce(
    results: Results,
    suite: suites.Suite,
    speeds: Mapping[str, plan.Speeds],
    expected_s: float | None,
    world: Snapshot | None,
) -> None:
    run, gaps = results.run, results.gaps()
    tell(f"{suite.suite} v{suite.version} ({suite.hash[:10]}): {_cells(len(run.cells))}. {suite.about}")
    letters = dict(zip((arm.name for arm in run.arms), LETTERS, strict=False))
    for arm in run.arms:
        note = "the baseline" if arm.name == run.baseline and len(run.arms) > 1 else ""
        note = f"cannot run: {arm.impossible}" if arm.impossible else note
        tell(f"  {letters[arm.name]}  {arm.name}" + (f"  ({note})" if note else ""))
    launches = plan.launches_left(results)
    order = " ".join(letters[run.order[index].arm] for index in launches)
    how = "passes over servers that are not started anew" if run.target == "url" else "launches, each of a new engine"
    tell(f"  {order}: {len(launches)} {how}; {_cells(len(gaps))} to measure")
    if world is not None and (stopped := [name for name, engine in world.engines.items() if engine.state != "failed"]):
        tell(f"It stops {', '.join(stopped)}; what serves now is brought back at the end.")
    sources = {one.source for one in speeds.values() if one.source}
    known = f"about {duration(expected_s)}, by decode rates {' and '.join(sorted(sources))}" if expected_s else None
    tell(f"It takes {known}." if known else "How long it takes is not known before the first launch.")


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


class _Bar:
    """Where a run is, as one line."""

    def __init__(self, run: Run) -> None:
        self._letters = dict(zip((arm.name for arm in run.arms), LETTERS, strict=False))
        self._line = LiveLine()
        self._rate = ""

    def show(self, step: Step) -> None:
        """Draw it."""
        if step.sample is not None:
            rate = step.sample.decode_tok_s
            self._rate = f"void: {step.sample.void}" if step.sample.void else f"{rate:.1f} tok/s" if rate else ""
        where = f"launch {step.launch + 1}/{step.launches} {self._letters.get(step.arm, '')}"
        what = cell_name(step.cell) if step.doing == "measuring" and step.cell else step.doing
        if step.doing == "launching" and step.world and step.world.swap:
            swap = step.world.swap
            what = f"{swap.phase.value} {swap.target or ''}".strip()
        filled = round(step.share * BAR)
        left = f"  about {duration(step.left_s)} left" if step.left_s else ""
        bar = f"[{'#' * filled}{'-' * (BAR - filled)}] {100 * step.share:.0f} %"
        self._line.draw(f"{bar}  {where}  {what}  {self._rate}{left}", f"{where}: {what}")

    def clear(self) -> None:
        """Take it away."""
        self._line.clear()


def cell_name(key: CellKey) -> str:
    """ "ctx 8K x 150, c4, warm"."""
    context = f"{key.context // 1024}K" if key.context and key.context % 1024 == 0 else str(key.context)
    parts = [f"ctx {context} x {key.output}" if key.kind is not Kind.MATH else "math"]
    parts += [f"c{key.concurrency}"] if key.concurrency > 1 else []
    parts += ["warm"] if key.warm else []
    parts += [key.text] if key.text else []
    return ", ".join(parts)


def _noise(found: Mapping[str, Noise]) -> str:
    """What the box does by itself, and what later runs are therefore not told of."""
    if not found:
        return "The noise cannot be told before all cells are measured in three launches; nothing is kept of it."
    lines = [
        f"{metric:<10} launches {100 * one.launch_sd:.2f} % apart (SD), requests of a launch {100 * one.within_sd:.2f} %; two equal "
        f"arms differ by up to {100 * one.floor(2, one.samples):.1f} % in standard mode, {100 * one.floor(4, one.samples):.1f} % in careful"
        for metric, one in found.items()
    ]
    return "\n".join([*lines, "Runs that begin from now on claim no smaller difference."])


def _as_json(results: Results, place: Path) -> dict[str, Any]:
    return {
        "run": results.run,
        "folder": str(place),
        "missing": results.gaps(),
        "rows": {metric.value: judgement.rows(results, metric) for metric in Metric},
        "overall": judgement.overall(results) if len(results.run.arms) > 1 else (),
        "void": sum(one.void is not None for one in results.samples),
    }
