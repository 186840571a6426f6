"""Run a measurement from the command line: plan, confirmation, progress bar, result table.

Owns: the order of these steps for `bench`, `ab` and `bench resume`. Must not know: how anything is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import typer
import uvloop

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.judge.calibration import calibration
from sparkdash.bench.measure import arm_launcher, box_lease
from sparkdash.bench.measure.runner import Runner
from sparkdash.bench.plan import run_plan, suites, sweep_file
from sparkdash.bench.plan.suite_of_run import suite_of_run
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Mode, Run
from sparkdash.cli.bench import (
    daemon_access,
    known_speeds,
    progress,
    reports,
    run_document,
    sweep_profiles,
    unfinished_runs,
)
from sparkdash.cli.bench.plan_document import plan_document
from sparkdash.cli.output import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.client.client import AsyncClient
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of one measurement, as given on the command line."""

    arms: tuple[str, ...]
    suite: str
    mode: Mode
    corpus: str | None = None
    model: str | None = None
    direct: bool = False
    share: bool = False
    reps: int | None = None
    seed: int = run_plan.SEED
    fresh: bool = False
    ask: bool = True
    as_json: bool = False
    calibrates: bool = False
    sweep: str | None = None
    dry_run: bool = False
    """Print the plan and measure nothing."""


def measure(wish: MeasureOptions) -> None:
    """Plan, confirm, measure and print. Raises SparkdashError."""
    _run_to_end(_measure(wish))


def resume_run(name: str, *, share: bool, ask: bool, as_json: bool) -> None:
    """Measure the missing cells of a run. Raises SparkdashError."""
    _run_to_end(_go_on(run_folder.find_run(name), share=share, ask=ask, as_json=as_json))


def _run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; a stop that was requested through the daemon ends it like Ctrl-C."""
    try:
        uvloop.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _measure(wish: MeasureOptions) -> None:
    suite = suites.load_suite(wish.suite)
    if wish.corpus is not None:
        suite = suite.with_corpus(wish.corpus)
    foreign = ["://" in name for name in wish.arms]
    if any(foreign) and not all(foreign):
        raise typer.BadParameter("give profiles or URLs, not both", param_hint="PROFILES")
    sweep_file.delete_stale_files()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(daemon_access.daemon_client(managed=not foreign[0]))
        swept: tuple[Arm, ...] = ()
        if client and wish.sweep:
            swept = await stack.enter_async_context(sweep_profiles.sweep_arms(client, wish.arms[0], wish.sweep))
        await _begun(client, suite, swept, wish, foreign[0])


async def _begun(
    client: AsyncClient | None, suite: suites.Suite, swept: tuple[Arm, ...], wish: MeasureOptions, foreign: bool
) -> None:
    world = await client.state() if client else None
    names = [(await client.profile(name=name)).name if client else name for name in wish.arms]
    profiles = {one.name: one for one in world.profiles} if world else {}
    arms = swept or run_plan.arms_of(names, profiles)
    simulated = any(profiles[name].simulated for name in names if name in profiles)
    where = run_plan.RunTarget(
        target=_target(wish, foreign=foreign),
        model=wish.model,
        host=daemon_access.host_facts(world),
        simulated=simulated,
        noise=run_folder.read_calibration(simulated=simulated),
    )
    suite_file = suites.suite_path(wish.suite)
    run = run_plan.new_run(
        suite, arms, wish.mode, seed=wish.seed, reps=wish.reps, suite_file=suite_file,
        where=where,
    )  # fmt: skip
    place = unfinished_runs.run_to_resume(run, fresh=wish.fresh)
    await _work(run_folder.read_results(place) if place else Results(run=run), client, world, suite, wish)


def _target(wish: MeasureOptions, *, foreign: bool) -> Literal["gateway", "direct", "url"]:
    if foreign:
        return "url"
    return "direct" if wish.direct else "gateway"


async def _go_on(place: Path, *, share: bool, ask: bool, as_json: bool) -> None:
    run = run_folder.read_run(place)
    suite = suite_of_run(run)
    wish = MeasureOptions(
        tuple(arm.profile for arm in run.arms), run.suite, run.mode, share=share, ask=ask, as_json=as_json
    )
    sweep_file.delete_stale_files()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(daemon_access.daemon_client(managed=run.target != "url"))
        world = await client.state() if client else None
        if client and world and run.ended_at is None and (again := sweep_profiles.missing_sweep(run.arms, world)):
            await stack.enter_async_context(sweep_profiles.sweep_arms(client, *again))
            world = await client.state()
        await _work(run_folder.read_results(place), client, world, suite, wish)


async def _work(
    results: Results, client: AsyncClient | None, world: Snapshot | None, suite: suites.Suite, wish: MeasureOptions
) -> None:
    """Print the plan, ask for confirmation, measure the missing cells and print the results."""
    place = paths.bench_dir() / results.run.id
    run, gaps = results.run, results.gaps()
    speeds = await known_speeds.arm_speeds(run, client, world)
    expected = run_plan.expected_s(gaps, speeds)
    if wish.dry_run and wish.as_json:
        print_json(plan_document(results, suite, speeds, expected, world))
        return
    if gaps:
        progress.print_plan(results, suite, speeds, expected, world)
        if wish.dry_run:
            return
        if wish.ask:
            _confirm(managed=client is not None)
        results = await _run(place, run, client, world, suite, wish, expected)
    if not results.gaps():
        await sweep_profiles.remove_sweep_profiles(client, run.arms)
    noise = calibration(results) if wish.calibrates and not results.gaps() else {}
    if noise:
        run_folder.save_calibration(run, noise)
    if wish.as_json:
        print_json(run_document.run_document(results, place))
        return
    reports.print_finished_run(place.name)
    if wish.calibrates:
        print_text(progress.noise_text(noise))
    _print_gaps(results)
    progress.print_uncounted(results)
    print_note(f"Saved in {place}")
    print_note(f"`sparkdash bench show {place.name}` also shows how each engine was started.")


def _confirm(*, managed: bool) -> None:
    """Ask before engines are stopped. Raises AdmissionError without a terminal, typer.Abort after a no."""
    if is_interactive():
        if not confirm("Begin?"):
            raise typer.Abort
    elif managed:
        raise AdmissionError(
            "The measurement was not confirmed, and it would stop the engines that run.",
            code="unconfirmed",
            hint="Add --yes to begin without a question.",
        )


def _print_gaps(results: Results) -> None:
    if missing := results.gaps():
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        what = f"{progress.cell_count(len(missing))} {verb} missing; run the same command again to measure {them}."
        progress.print_wrapped(f"{what} See `sparkdash bench list`.")


async def _run(
    place: Path,
    run: Run,
    client: AsyncClient | None,
    world: Snapshot | None,
    suite: suites.Suite,
    wish: MeasureOptions,
    expected_s: float | None,
) -> Results:
    bar = progress.ProgressBar(run)
    headers = arm_launcher.bench_headers()
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(await daemon_access.open_wire(client, world, run, headers))
        here: arm_launcher.ArmLauncher = arm_launcher.UrlLauncher(wire, run.model)
        if client is not None:
            here = arm_launcher.DaemonLauncher(client, wire, direct=run.target == "direct")
        watch = progress.RunProgress(run, bar)
        runner = Runner(
            place, here, watch.show, lag_limit_ms=suite.lag_limit_ms, chats=suite.chats, corpus=suite.corpus_text
        )
        pulse = box_lease.LeaseHeartbeat(
            expected_s=lambda: runner.left_s if runner.left_s is not None else expected_s,
            measuring=lambda: watch.measuring,
            ends=_ending(),
        )
        watch.on_change = pulse.news.set
        holder = f"sparkdash bench ({run.suite})"
        if client is not None:
            await stack.enter_async_context(
                box_lease.hold_box(client, holder, headers, pulse, shares=wish.share, waits=progress.print_waiting)
            )
        else:
            await stack.enter_async_context(daemon_access.announce_measurement(holder, pulse))
        if client is not None and world is not None:
            stack.push_async_callback(daemon_access.restore_engine, client, world)
        stack.enter_context(run_folder.keep_if_launched(run))
        try:
            return await runner.run()
        except asyncio.CancelledError:
            bar.clear()
            begun = run_folder.read_results(place).launches
            print_note(
                "Stopped. The measured cells are kept; run the same command to resume."
                if begun
                else "Stopped. Nothing was measured."
            )
            raise
        finally:
            bar.clear()


def _ending() -> Callable[[], None]:
    """Return a function that ends the current task as Ctrl-C would."""
    main = asyncio.current_task()

    def end() -> None:
        if main is not None:
            main.cancel()

    return end
