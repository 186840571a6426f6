"""Text of `sparkdash status`: a Snapshot in, lines out.

Rule: unknown values are "-", simulated ones are marked SIMULATED, and lines fit 80 columns for ordinary names.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from sparkdash.cli.output.tables import format_table
from sparkdash.domain.container import Stranger
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Notice
from sparkdash.domain.lease import Request
from sparkdash.domain.liveness import Liveness
from sparkdash.domain.measuring import Measuring
from sparkdash.domain.memory.guard import Guard
from sparkdash.domain.metric import EngineSample, Memory, Metric
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap
from sparkdash.domain.text.repair_text import is_told, repair_text, state_text, step_text, waiting_on
from sparkdash.domain.text.swap_text import estimate_text, stage_text, wait_text
from sparkdash.printable import one_line
from sparkdash.units import DASH, GIB, age, duration, gib, number, percent, tokens

LABEL = 10
"""Width of the label column."""
COLUMNS = 80
STALE_S = 5.0
"""Figures older than this are shown with their age."""


def status_lines(world: Snapshot) -> Iterator[str]:
    """Format the whole report; ages are relative to the snapshot's own time."""
    yield from _daemon(world)
    yield from _engines(world)
    yield from _parked(world)
    yield from _unadopted(world)
    yield from _box(world)
    if world.measuring and world.measuring.lives(world.at):
        yield from _measuring(world.measuring)
    for swap in world.swaps_under_way:
        yield _row("swap", swap_line(swap, world.at))
    if world.swap is None:
        yield _row("swap", DASH)
    yield from _requests(world)
    yield from _repairs(world)
    newest: dict[str, Notice] = {}
    for notice in world.notices:  # what was told again has its last time alone
        newest.setdefault(notice.text, notice)
    for notice in list(newest.values())[:3]:
        ago = f" ({_since(notice.at, world)} ago)" if notice.at is not None else ""
        yield from _told(notice.level, notice.text + ago)
    if world.problems:
        yield _row("profiles", f"{len(world.problems)} with problems; see `sparkdash profiles check`")


def _measuring(now: Measuring) -> Iterator[str]:
    left = f", about {duration(now.left_s)} left" if now.left_s is not None else ""
    yield _row("bench", f"{now.run}  {percent(now.share)}{left}")
    yield _row("", f"{now.arm}: {now.cell or now.doing}")


def swap_line(swap: Swap, now: float) -> str:
    """Describe a swap: "to gpt-oss-120b: load weights 63 %  38 % in 43s, about 1m40s left"."""
    goal = f"to {swap.target}" if swap.target else "stop"
    words = (f"{goal}: {phase_text(swap)}", wait_text(swap, now), time_text(swap, now))
    return "  ".join(filter(None, words))


def phase_text(swap: Swap) -> str:
    """Name the current phase, with the load stage and its share where the log reveals it."""
    return swap.phase.value if swap.progress is None else f"{swap.phase.value} {stage_text(swap)}"


def time_text(swap: Swap, now: float) -> str:
    """Format progress and times: "38 % in 43s, about 1m40s left (1m20s to 2m10s)"."""
    share = f"{percent(swap.fraction)} in " if swap.fraction is not None else ""
    return share + ", ".join(filter(None, (age(now - swap.started_at), estimate_text(swap, now))))


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{one_line(text)}"


def _told(label: str, text: str) -> Iterator[str]:
    """Format a label and sentences, wrapped at COLUMNS."""
    yield from fill(
        text, COLUMNS, initial_indent=f"{label:<{LABEL}}", subsequent_indent=" " * LABEL, break_long_words=False
    ).splitlines()


def _daemon(world: Snapshot) -> Iterator[str]:
    daemon = world.daemon
    mark = "  SIMULATED" if daemon.simulated else ""
    yield _row("daemon", f"sparkdash {daemon.version} on {daemon.host}, up {_since(daemon.started_at, world)}{mark}")
    yield _row("url", f"{daemon.url}  ({daemon.runtime})")


def _since(then: float | None, world: Snapshot) -> str:
    return DASH if then is None else duration(max(0.0, world.at - then))


def _engines(world: Snapshot) -> Iterator[str]:
    if not world.engines:
        yield _row("engine", DASH if world.swap else f"{DASH}  none runs; `sparkdash use PROFILE` starts one")
    # what serves comes before what failed
    for engine in sorted(world.engines.values(), key=lambda engine: engine.state is EngineState.FAILED):
        yield _row("engine", _engine(engine, world))
        if engine.failure:
            yield from _told("", f"{engine.failure.message} {engine.failure.hint or ''}")
        yield from _liveness(engine.liveness, world)
        sample = world.sample.engines.get(engine.profile) if world.sample else None
        if sample:
            yield from _figures(sample, world)


def _liveness(liveness: Liveness | None, world: Snapshot) -> Iterator[str]:
    if liveness is None or not is_told(liveness):
        return
    yield from _told("liveness", f"{state_text(liveness, world.at)}: {liveness.why}")
    if step := step_text(liveness, world.at):
        yield _row("", step)


def _repairs(world: Snapshot) -> Iterator[str]:
    if (every := world.repairs.every) is not None:
        yield _row("repairs", repair_text(every))
    several = world.repairs.by_profile if every is None or len(world.repairs.by_profile) > 1 else {}
    for name, each in several.items():
        yield _row("", f"{name}: {repair_text(each)}")


def _parked(world: Snapshot) -> Iterator[str]:
    for name, parked in world.parked.items():
        shown = name in world.engines  # with its failure
        why = "" if shown else f" {parked.failure.message} {parked.failure.hint or ''}".rstrip()
        yield from _told("parked", f"{name}:{why} Fix the cause, then `sparkdash release {name}`.")


def _unadopted(world: Snapshot) -> Iterator[str]:
    for name in world.unadopted:
        yield from _told(
            "unadopted",
            f"{name} runs but serves nobody: its profile's file cannot be read. `sparkdash stop {name}` ends it.",
        )


def _engine(engine: Engine, world: Snapshot) -> str:
    words = [engine.profile, f"{engine.kind.value} {engine.version or DASH}", engine.state.value]
    words.append(_since(engine.since if engine.ready_at is None else engine.ready_at, world))
    if world.is_outdated(engine.profile):
        words.append("file edited since")
    return "  ".join(words) + ("  SIMULATED" if engine.simulated else "")


def _figures(sample: EngineSample, world: Snapshot) -> Iterator[str]:
    get = sample.get
    age = world.at - sample.at
    stale = f"  ({duration(age)} old)" if age > STALE_S else ""
    yield _row(
        "speed",
        f"decode {number(get(Metric.DECODE), 1)} tok/s  prefill {number(get(Metric.PREFILL))} tok/s  "
        f"ttft p50 {number(get(Metric.TTFT_P50), 2, ' s')}{stale}",
    )
    yield _row(
        "cache",
        f"prefix {percent(get(Metric.PREFIX_HIT))} (lifetime {percent(get(Metric.PREFIX_HIT_LIFETIME))})  "
        f"kv {percent(get(Metric.KV_USED))} of {tokens(get(Metric.KV_CAPACITY))} tokens",
    )
    if get(Metric.ACCEPTANCE_LENGTH) is not None or sample.acceptance_at:
        places = " ".join(f"{share:.2f}" for share in sample.acceptance_at or ()) or DASH
        yield _row("accept", f"{places}  mean acceptance length {number(get(Metric.ACCEPTANCE_LENGTH), 2)}")
    yield _row("queue", f"running {number(get(Metric.RUNNING))}  waiting {number(get(Metric.WAITING))}")


def _box(world: Snapshot) -> Iterator[str]:
    memory = world.sample.memory if world.sample else None
    yield _row("memory", _memory(memory) + _age(world) if memory else DASH)
    for each in memory.strangers if memory else ():
        yield from _told("others", _stranger(each))
    if world.guard:
        yield from _guard(world.guard, world)
    gpu = world.sample.gpu if world.sample else None
    if gpu:
        yield _row(
            "gpu",
            f"{percent(gpu.utilization)}  {number(gpu.power_w, 0, ' W')}  {number(gpu.temperature_c, 0, ' °C')}  "
            f"{number(gpu.sm_clock_mhz, 0, ' MHz')}",
        )
        if world.sample and world.sample.low_power:
            yield from _told(
                "", "stuck in its low-power state, which slows every engine: unplug the power for a minute"
            )


def _guard(guard: Guard, world: Snapshot) -> Iterator[str]:
    floors = guard.floors
    if floors is None:
        yield _row("guard", "off" + (": the memory is simulated" if world.daemon.simulated else ""))
        return
    acts = f"{number(floors.hold / GIB, 1)} holds loads back, {number(floors.kill / GIB, 1)} kills"
    does = acts if guard.mode == "act" else "and does no more"
    level = guard.level if guard.since is None else f"{guard.level} for {_since(guard.since, world)}"
    yield _row("guard", f"{level}  under {gib(floors.warn)} warns, {does}")
    for kill in guard.kills[:1]:
        yield _row("", f"killed {kill.profile} {_since(kill.at, world)} ago, at {gib(kill.available)} available")


def _age(world: Snapshot) -> str:
    """Return the age of a stale sample: the box is sampled less often while nobody watches."""
    old = world.at - world.sample.at if world.sample else 0.0
    return f"  ({duration(old)} ago)" if old > STALE_S else ""


def _stranger(each: Stranger) -> str:
    takes = [gib(each.bytes), *(["a GPU"] if each.gpu else []), *(f"port {port}" for port in each.ports)]
    return f"{each.name} ({each.image or 'no image'}) has {', '.join(takes)}; not started by sparkdash, left alone"


def _memory(memory: Memory) -> str:
    held = [size for size in memory.engines.values() if size is not None]
    engines = gib(sum(held)) if held or not memory.engines else DASH
    return f"{gib(memory.available)} available of {gib(memory.total)}  engines {engines}  reserve {gib(memory.reserve)}"


def _requests(world: Snapshot) -> Iterator[str]:
    yield _row("requests", f"{len(world.requests)} in flight" if world.requests else "none in flight")
    if world.requests:
        head = ("client", "profile", "state", "prompt", "out", "ttft", "tok/s")
        rows = [_request(request, world) for request in world.requests.values()]
        yield from (f"  {line}" for line in format_table(head, rows, "<<<>>>>"))


def _request(request: Request, world: Snapshot) -> tuple[str, ...]:
    place = f" {request.position}" if request.position is not None else ""
    engine = world.engines.get(request.profile)
    stuck = ", " + waits if engine and (waits := waiting_on(engine.liveness, world.at)) else ""
    return (
        request.client,
        request.profile,
        f"{request.state.value}{place}{stuck}",
        tokens(request.prompt_tokens),
        tokens(request.completion_tokens),
        number(request.ttft_s, 2),
        number(request.decode_tok_s, 1),
    )
