"""Text of `sparkdash status`: a Snapshot in, lines out.

Rule: unknown values are "-", simulated ones are marked SIMULATED, and lines fit 80 columns for ordinary names.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.cli.engines.box_status import STALE_S, box_rows
from sparkdash.cli.engines.status_rows import status_row, time_since, wrapped_rows
from sparkdash.cli.output.tables import format_table
from sparkdash.domain.engine import Engine, EngineState, Liveness
from sparkdash.domain.event import Measuring, Notice
from sparkdash.domain.lease import Request
from sparkdash.domain.metric import EngineSample, Metric
from sparkdash.domain.node import LOCAL
from sparkdash.domain.phrases import (
    about,
    boxes_text,
    estimate_text,
    figure_text,
    figures_of_request,
    heard_text,
    is_told,
    repair_text,
    request_phase,
    stage_text,
    state_text,
    step_share,
    step_text,
    wait_reason,
    wait_text,
    waiting_on,
)
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap
from sparkdash.units import DASH, age, duration, number, percent, tokens

SHOWN_NOTICES = 3


def status_lines(world: Snapshot) -> Iterator[str]:
    """Format the whole report; ages are relative to the snapshot's own time."""
    yield from _daemon(world)
    yield from _engines(world)
    if world.default is not None:
        yield status_row("default", f"{world.default.profile}, after {duration(world.default.after_s)} without use")
    yield from _parked(world)
    yield from _unadopted(world)
    yield from box_rows(world)
    if world.measuring and world.measuring.lives(world.at):
        yield from _measuring(world.measuring)
    yield from _swaps(world)
    yield from _requests(world)
    yield from _repairs(world)
    yield from _notices(world)
    if world.problems:
        yield status_row("profiles", f"{len(world.problems)} with problems; see `sparkdash profiles check`")


def _swaps(world: Snapshot) -> Iterator[str]:
    for swap in world.swaps_under_way:
        yield status_row("swap", swap_line(swap, world.at))
        if heard := heard_text(swap, world.at):
            yield from wrapped_rows("", f"{heard}: {swap.progress.detail}" if swap.progress else heard)
    if world.swap is None:
        yield status_row("swap", DASH)


def _notices(world: Snapshot) -> Iterator[str]:
    newest: dict[str, Notice] = {}
    for notice in world.notices:  # what was told again has its last time alone
        if notice.at is None or notice.at >= world.daemon.started_at:  # `history` has those of earlier daemons
            newest.setdefault(notice.text, notice)
    for notice in list(newest.values())[:SHOWN_NOTICES]:
        ago = f" ({time_since(notice.at, world)} ago)" if notice.at is not None else ""
        yield from wrapped_rows(notice.level, notice.text + ago)


def _measuring(now: Measuring) -> Iterator[str]:
    left = f", about {duration(now.left_s)} left" if now.left_s is not None else ""
    yield status_row("bench", f"{now.run}  {percent(now.share)}{left}")
    yield status_row("", f"{now.arm}: {now.cell or now.doing}")


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


def _daemon(world: Snapshot) -> Iterator[str]:
    daemon = world.daemon
    mark = "  SIMULATED" if daemon.simulated else ""
    yield status_row(
        "daemon", f"sparkdash {daemon.version} on {daemon.host}, up {time_since(daemon.started_at, world)}{mark}"
    )
    yield status_row("url", f"{daemon.url}  ({daemon.runtime})")


def _engines(world: Snapshot) -> Iterator[str]:
    if not world.engines:
        yield status_row("engine", DASH if world.swap else f"{DASH}  none runs; `sparkdash use PROFILE` starts one")
    # what serves comes before what failed
    for engine in sorted(world.engines.values(), key=lambda engine: engine.state is EngineState.FAILED):
        yield status_row("engine", _engine(engine, world))
        if engine.failure:
            yield from wrapped_rows("", f"{engine.failure.message} {engine.failure.hint or ''}")
        yield from _liveness(engine.liveness, world)
        sample = world.sample.engines.get(engine.profile) if world.sample else None
        if sample:
            yield from _figures(sample, world)
            if step := step_share(engine, sample):
                yield status_row("step", f"link {step} of a step")


def _liveness(liveness: Liveness | None, world: Snapshot) -> Iterator[str]:
    if liveness is None or not is_told(liveness):
        return
    yield from wrapped_rows("liveness", f"{state_text(liveness, world.at)}: {liveness.why}")
    if step := step_text(liveness, world.at):
        yield status_row("", step)


def _repairs(world: Snapshot) -> Iterator[str]:
    if (every := world.repairs.every) is not None:
        yield status_row("repairs", repair_text(every))
    several = world.repairs.by_profile if every is None or len(world.repairs.by_profile) > 1 else {}
    for name, each in several.items():
        yield status_row("", f"{name}: {repair_text(each)}")


def _parked(world: Snapshot) -> Iterator[str]:
    for name, parked in world.parked.items():
        shown = name in world.engines  # with its failure
        why = "" if shown else f" {parked.failure.message} {parked.failure.hint or ''}".rstrip()
        yield from wrapped_rows("parked", f"{name}:{why} Fix the cause, then `sparkdash status --release {name}`.")


def _unadopted(world: Snapshot) -> Iterator[str]:
    for name in world.unadopted:
        yield from wrapped_rows(
            "unadopted",
            f"{name} runs but serves nobody: its profile's file cannot be read. `sparkdash stop {name}` ends it.",
        )


def _engine(engine: Engine, world: Snapshot) -> str:
    words = [engine.profile, f"{engine.kind.value} {engine.version or DASH}", engine.state.value]
    serves = engine.state in (EngineState.READY, EngineState.DRAINING)
    words.append(time_since(engine.ready_at if serves and engine.ready_at is not None else engine.since, world))
    if world.nodes or engine.nodes != (LOCAL,):
        words.append(f"on {boxes_text(engine.nodes, world.daemon.host)}")
    if world.is_outdated(engine.profile):
        words.append("file edited since")
    return "  ".join(words) + ("  SIMULATED" if engine.simulated else "")


def _figures(sample: EngineSample, world: Snapshot) -> Iterator[str]:
    get = sample.get

    def shown(metric: Metric, digits: int = 0, unit: str = "") -> str:
        return figure_text(sample.figure(metric), lambda value: number(value, digits, unit))

    age = world.at - sample.at
    stale = f"  ({duration(age)} old)" if age > STALE_S else ""
    yield status_row(
        "speed",
        f"decode {shown(Metric.DECODE, 1)} tok/s (each {shown(Metric.DECODE_EACH, 1)})  "
        f"prompt {shown(Metric.PROMPT_SPEED)} tok/s  ttft p50 {shown(Metric.TTFT_P50, 2, ' s')}{stale}",
    )
    if not sample.values:
        yield status_row("queue", f"in flight {shown(Metric.RUNNING)}  ~ counted by the gateway")
        if sample.gateway and sample.gateway.requests:
            ended = sample.gateway
            yield status_row("ended", f"{ended.requests} requests  {tokens(ended.output_tokens)} output tokens")
        return
    yield status_row(
        "cache",
        f"prefix {percent(get(Metric.PREFIX_HIT))} (lifetime {percent(get(Metric.PREFIX_HIT_LIFETIME))})  "
        f"kv {percent(get(Metric.KV_USED))} of {tokens(get(Metric.KV_CAPACITY))} tokens",
    )
    if get(Metric.ACCEPTANCE_LENGTH) is not None or sample.acceptance_at:
        places = " ".join(f"{share:.2f}" for share in sample.acceptance_at or ()) or DASH
        yield status_row("accept", f"{places}  mean acceptance length {number(get(Metric.ACCEPTANCE_LENGTH), 2)}")
    yield status_row("queue", f"running {shown(Metric.RUNNING)}  waiting {number(get(Metric.WAITING))}")


def _requests(world: Snapshot) -> Iterator[str]:
    yield status_row("requests", f"{len(world.requests)} in flight" if world.requests else "none in flight")
    if world.requests:
        head = ("client", "profile", "state", "prompt", "out", "ttft", "tok/s")
        rows = [_request(request, world) for request in world.requests.values()]
        yield from (f"  {line}" for line in format_table(head, rows, "<<<>>>>"))


def _request(request: Request, world: Snapshot) -> tuple[str, ...]:
    place = f" #{request.position}" if request.position is not None else ""
    engine = world.engines.get(request.profile)
    figures, why = figures_of_request(request, world.sample), wait_reason(request, world)
    why = why and f" {why}"
    stuck = ", " + waits if engine and (waits := waiting_on(engine.liveness, world.at)) else ""
    return (
        request.client,
        request.profile,
        f"{request_phase(request, world.sample, world.at)}{place}{stuck or why}",
        about(tokens(figures.prompt), estimated=figures.prompt_estimated),
        about(tokens(figures.output), estimated=figures.output_estimated),
        number(request.ttft_s, 2),
        number(figures.tok_s, 1),
    )
