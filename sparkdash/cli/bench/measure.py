"""Run a measurement from the command line: plan, confirmation, progress, result, and the box as it was before."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.measure import arm_launcher, box_lease
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.runner import Runner, refuse_edited
from sparkdash.bench.plan import run_plan, suites, sweep
from sparkdash.bench.plan.run_plan import KnownSpeeds
from sparkdash.bench.plan.suites import suite_of_run
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Host, Mode, Run
from sparkdash.cli.bench import progress, reports
from sparkdash.cli.bench.progress import plan_document
from sparkdash.cli.output import ask_or_refuse, print_json, print_note
from sparkdash.cli.use import note_broken_file
from sparkdash.client.address import credentials
from sparkdash.client.client import AsyncClient
from sparkdash.client.follow import until_ready
from sparkdash.domain.engine import EngineState
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, SparkdashError, UpstreamError
from sparkdash.units import GIB, counted


async def restore_box(
    client: AsyncClient, ran: Sequence[str], measured: Collection[str], after: AsyncExitStack
) -> None:
    """Stop the `measured` engines that are not among those that `ran`, and bring those back; say what fails.

    The last one's load is waited for at the end of `after`, when others may use the box again.
    """
    now = set(ran)
    by_hand = [f"sparkdash use {name}" for name in ran] or ["sparkdash stop"]
    with _told("The box was not put back as it was", " && ".join(by_hand)):
        now = _running(await client.state())
    for name in sorted(now & set(measured) - {*ran}):
        with _told(f"{name} was measured and still runs", f"sparkdash stop {name}"):
            await client.stop(profile=name)
    back = [name for name in ran if name not in now]
    for name in back:
        print_note(f"Bringing {name} back.")
        ordered = asyncio.Event()
        coming = asyncio.create_task(_bring_back(client, name, ordered))
        if name == back[-1]:
            await ordered.wait()
            after.push_async_callback(asyncio.wait, (coming,))
        else:
            await coming


async def _bring_back(client: AsyncClient, name: str, ordered: asyncio.Event) -> None:
    with _told(f"{name} was not brought back", f"sparkdash use {name}"):
        try:
            await until_ready(client, name, lambda _: ordered.set(), "bench")
        finally:
            ordered.set()


async def _put_back(
    client: AsyncClient, place: Path, ran: Sequence[str], measured: Collection[str], after: AsyncExitStack
) -> None:
    await restore_box(client, ran, measured, after)
    with contextlib.suppress(SparkdashError):  # a run that began nothing has no folder any more
        if _running(await client.state()).issuperset(ran):
            run_folder.save_run(place, run_folder.read_run(place).replace(displaced=None))


def running_profiles(world: Snapshot) -> tuple[str, ...]:
    """Return what runs, the active one last, so that it is it again when all are brought back."""
    active = world.active.profile if world.active else None
    return tuple(sorted(_running(world), key=lambda name: (name == active, name)))


def _running(world: Snapshot) -> set[str]:
    gone = (EngineState.ABSENT, EngineState.FAILED, EngineState.STOPPING)
    return {name for name, engine in world.engines.items() if engine.state not in gone}


@contextlib.contextmanager
def _told(trouble: str, command: str) -> Iterator[None]:
    """Print an error and the command that does the same by hand; the rest of the box can still be put back."""
    try:
        yield
    except SparkdashError as error:
        progress.print_wrapped(f"{trouble}: {error.message} `{command}` tries it again.")


async def open_wire(client: AsyncClient, world: Snapshot, headers: dict[str, str]) -> BenchClient:
    """Connect to the gateway over TCP, because there the kernel reports when bytes arrived.

    A gateway that asks for a key is reached as the command line reaches it. The key is sent nowhere else.
    """
    address, root = client.address, world.daemon.url.removesuffix("/v1")
    if address.uds is not None and root.startswith("http:"):
        async with BenchClient(root, headers) as wire:
            with contextlib.suppress(UpstreamError):
                await wire.get("/v1/models")
                return BenchClient(root, headers)
    if address.url.startswith("https:"):
        raise AdmissionError(
            f"Over https to {address} nobody tells when bytes arrive.",
            code="bench_over_https",
            hint=f"Measure on {world.daemon.host} itself.",
        )
    headers |= credentials(address)
    return BenchClient(address.url, headers, address.uds)


def host_facts(world: Snapshot) -> Host:
    gpu = world.sample.gpu if world.sample else None
    memory = world.sample.memory if world.sample else None
    return Host(
        name=world.daemon.host,
        gpu=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        memory_bytes=memory.total if memory else None,
    )


START_S, START_S_PER_GIB = 60.0, 6.0
"""Start of an engine that was never seen: published starts take 5 to 15 minutes for 70 to 115 GB."""


async def _start_s(name: str, client: AsyncClient, world: Snapshot) -> float | None:
    """Return the time of a start. Raises AdmissionError before any engine is stopped: too few boxes for it."""
    seen, plan = world.figures.get(name), await client.plan(name=name)
    if plan.fits is False and (profile := world.profile(name)) and profile.nodes > 1:
        hint = "Add another box with `sparkdash nodes add NAME --ssh USER@HOST`."
        raise AdmissionError(f"{name} cannot be measured. {plan.verdict}", code="needs_two_nodes", hint=hint)
    return (seen.load_s if seen else None) or plan.expected_s or None


async def arm_speeds(run: Run, client: AsyncClient, world: Snapshot) -> dict[str, KnownSpeeds]:
    starts: dict[str, float | None] = {}
    for name in {arm.profile for arm in run.arms if arm.impossible is None}:
        starts[name] = await _start_s(name, client, world)
    seen = run_plan.speeds_of(run.arms, world, starts)
    return {arm.name: _completed(arm, seen.get(arm.name, KnownSpeeds()), world) for arm in run.arms}


def _completed(arm: Arm, known: KnownSpeeds, world: Snapshot) -> KnownSpeeds:
    summary = world.profile(arm.profile)
    if known.launch_s is None and summary is not None and summary.needs_bytes:
        return known.replace(launch_s=START_S + START_S_PER_GIB * summary.needs_bytes / GIB, estimated=True)
    return known


@asynccontextmanager
async def sweep_arms(client: AsyncClient, profile_name: str, asked_for: str) -> AsyncIterator[tuple[Arm, ...]]:
    """Yield the arms of a sweep, whose profiles' file the daemon has read; it is removed when the run never began.

    Raises AdmissionError: sweep_invalid, sweep_unread, sweep_taken; HostError: sweep_unwritable.
    """
    from sparkdash.catalog import yaml12
    from sparkdash.catalog.catalog import nearest

    asked = sweep.parse_sweep(asked_for)
    profile = await client.profile(name=profile_name)
    if not asked.is_set(profile):
        near = nearest(asked.name, asked.known(profile))
        guess = f" Did you mean {near[0]}?" if near else ""
        print_note(f"{profile.name} does not set {asked.name}: the sweep adds it.{guess}")
    family, arms = asked.family(profile), asked.arms(profile)
    file = sweep.write_sweep_file(family, yaml12.dump(asked.document(profile)))
    try:
        await _read(client, arms, file)
        yield arms
    finally:
        if not sweep.is_needed(family):
            await remove_sweep_profiles(client, arms)


def missing_sweep(arms: Sequence[Arm], world: Snapshot) -> tuple[str, str] | None:
    """Return profile and NAME=VALUES of a sweep whose profiles are gone: another sweep overwrote its file."""
    asked = sweep.sweep_of(arms)
    gone = any(world.profile(arm.profile) is None for arm in arms)
    return asked if asked and gone else None


async def remove_sweep_profiles(client: AsyncClient, arms: Sequence[Arm]) -> None:
    families = {arm.profile.split("/", 1)[0] for arm in arms if arm.swept}
    gone = [family for family in families if sweep.delete_sweep_file(family)]
    if gone:
        with contextlib.suppress(SparkdashError):  # the daemon sees by itself, a little later, that they are gone
            for name in (await client.state()).engines.keys() & {arm.profile for arm in arms}:
                await client.stop(profile=name)
            await client.reload()


async def _read(client: AsyncClient, arms: Sequence[Arm], file: Path) -> None:
    read = await client.reload()
    if problems := [one for one in read.problems if file.name in one]:
        raise AdmissionError(f"The profile cannot be swept with these values: {problems[0]}", code="sweep_invalid")
    if not {arm.profile for arm in arms} <= {one.name for one in read.profiles}:
        raise AdmissionError(
            f"The daemon at {client.address} does not read the profiles in {file.parent}, where a sweep writes them.",
            code="sweep_unread",
            hint="The daemon uses another config folder, as every demo does. "
            "Run this on its box, with its SPARKDASH_CONFIG_DIR.",
        )


def run_to_resume(run: Run, profiles: Mapping[str, ProfileSummary]) -> Path | None:
    """Return the folder of the newest unfinished run with the same question, and say so; None: begin a new one.

    A run whose suite or profiles were edited since is passed over: no command completes it.
    """
    now = {name: one.fingerprints for name, one in profiles.items()}
    for place in run_folder.list_runs():
        with contextlib.suppress(AdmissionError):
            other = run_folder.read_run(place)
            same = other.ended_at is None and run_plan.is_same_question(other, run)
            if same and suites.can_resume(run_folder.read_results(place), now):
                print_note(f"Resuming {place.name}, which was stopped. Use --fresh to start a new run.")
                return place
    return None


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Options of one measurement, as given on the command line."""

    arms: tuple[str, ...]
    suite: str
    mode: Mode
    reps: int | None = None
    seed: int = run_plan.SEED
    fresh: bool = False
    ask: bool = True
    as_json: bool = False
    sweep: str | None = None
    dry_run: bool = False


def measure(wish: MeasureOptions) -> None:
    _run_to_end(_measure(wish))


def resume_run(name: str, *, ask: bool, as_json: bool) -> None:
    _run_to_end(_go_on(run_folder.find_run(name), ask=ask, as_json=as_json))


def _run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; a stop that was requested through the daemon ends it like Ctrl-C."""
    try:
        uvloop.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _measure(wish: MeasureOptions) -> None:
    suite = suites.load_suite(wish.suite)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient())
        swept: tuple[Arm, ...] = ()
        if wish.sweep:
            swept = await stack.enter_async_context(sweep_arms(client, wish.arms[0], wish.sweep))
        await _begun(client, suite, swept, wish, stack)


async def _begun(
    client: AsyncClient, suite: suites.Suite, swept: tuple[Arm, ...], wish: MeasureOptions, after: AsyncExitStack
) -> None:
    world = await client.state()
    names = [(await client.profile(name=name)).name for name in wish.arms]
    for name in dict.fromkeys(names):
        await note_broken_file(client, name)
    profiles = {one.name: one for one in world.profiles}
    run = run_plan.new_run(
        suite, swept or run_plan.arms_of(names, profiles), wish.mode, seed=wish.seed, reps=wish.reps,
        suite_file=suites.suite_path(wish.suite),
        host=host_facts(world), simulated=any(profiles[name].simulated for name in names if name in profiles),
    )  # fmt: skip
    place = None if wish.fresh else run_to_resume(run, profiles)
    await _work(run_folder.read_results(place) if place else Results(run=run), client, world, suite, wish, after)


async def _go_on(place: Path, *, ask: bool, as_json: bool) -> None:
    run = run_folder.read_run(place)
    suite = suite_of_run(run)
    wish = MeasureOptions(tuple(arm.profile for arm in run.arms), run.suite, run.mode, ask=ask, as_json=as_json)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient())
        world = await client.state()
        if run.ended_at is None and (again := missing_sweep(run.arms, world)):
            await stack.enter_async_context(sweep_arms(client, *again))
            world = await client.state()
        results = run_folder.read_results(place)
        _refuse_edited(results, world)
        await _work(results, client, world, suite, wish, stack)


def _refuse_edited(results: Results, world: Snapshot) -> None:
    launched = {one.arm: one.provenance.fingerprint for one in results.launches}
    for arm in results.run.arms:
        now = world.profile(arm.profile) if arm.name in launched else None
        if now is not None and launched[arm.name] not in now.fingerprints:
            refuse_edited(arm, launched, now.fingerprint)


async def _work(
    results: Results, client: AsyncClient, world: Snapshot, suite: suites.Suite, wish: MeasureOptions,
    after: AsyncExitStack,
) -> None:  # fmt: skip
    place = paths.bench_dir() / results.run.id
    run, gaps = results.run, results.gaps()
    speeds = await arm_speeds(run, client, world)
    expected = run_plan.expected_s(gaps, speeds)
    if wish.dry_run and wish.as_json:
        print_json(plan_document(results, suite, speeds, expected, world))
        return
    if gaps:
        progress.print_plan(results, suite, speeds, expected, world)
        if wish.dry_run:
            return
        if wish.ask:
            ask_or_refuse("Begin?", _unconfirmed())
        results = await _run(place, run, client, world, suite, expected, after)
    if not results.gaps():
        await remove_sweep_profiles(client, run.arms)
    if wish.as_json:
        print_json(reports.read_report(place.name))
        return
    reports.print_finished_run(place.name)
    _print_gaps(results)
    progress.print_uncounted(results)
    print_note(f"Saved in {place}")
    print_note(f"`sparkdash bench show {place.name}` also shows how each engine was started.")


def _unconfirmed() -> AdmissionError:
    return AdmissionError(
        "The measurement was not confirmed, and it would stop the engines that run.",
        code="unconfirmed",
        hint="Add --yes to begin without a question.",
    )


def _print_gaps(results: Results) -> None:
    if missing := results.gaps():
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        command = f"sparkdash bench resume {results.run.id}"
        print_note(f"{counted(len(missing), 'cell')} {verb} missing; `{command}` measures {them}.")


async def _run(
    place: Path, run: Run, client: AsyncClient, world: Snapshot, suite: suites.Suite, expected_s: float | None,
    after: AsyncExitStack,
) -> Results:  # fmt: skip
    headers = arm_launcher.bench_headers()
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(await open_wire(client, world, headers))
        here = arm_launcher.DaemonLauncher(client, wire)
        watch = progress.RunProgress(run)
        runner = Runner(place, here, watch.show, lag_limit_ms=suite.lag_limit_ms, chats=suite.chats)
        pulse = box_lease.LeaseHeartbeat(
            expected_s=lambda: runner.left_s if runner.left_s is not None else expected_s,
            measuring=lambda: watch.measuring,
            ends=_ending(),
        )
        watch.on_change = pulse.news.set
        for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: the box is put back
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup has the terminal's end ignored
                asyncio.get_running_loop().add_signal_handler(number, pulse.ends)
        holder = f"sparkdash bench ({run.suite})"
        await stack.enter_async_context(
            box_lease.hold_box(client, holder, headers, pulse, waits=progress.print_waiting)
        )
        measured = {arm.profile for arm in run.arms}
        ran = running_profiles(await client.state())
        if run.displaced is not None and measured.issuperset(ran):  # left by a run that was killed
            ran = run.displaced
        stack.push_async_callback(_put_back, client, place, ran, measured, after)
        stack.enter_context(run_folder.keep_if_launched(run))
        run_folder.save_run(place, run.replace(displaced=ran))
        try:
            return await runner.run()
        except (asyncio.CancelledError, SparkdashError) as error:
            watch.line.clear()
            if not isinstance(error, AdmissionError):
                kept = f"The measured cells are kept; `sparkdash bench resume {run.id}` goes on."
                begun = run_folder.read_results(place).launches
                print_note(f"Stopped. {kept if begun else 'Nothing was measured.'}")  # unwrapped, to be pasted
            raise
        finally:
            watch.line.clear()


def _ending() -> Callable[[], None]:
    main = asyncio.current_task()

    def end() -> None:
        if main is not None:
            main.cancel()

    return end
