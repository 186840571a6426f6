"""Text of `sparkdash status`, and the line of a swap under way."""

from collections.abc import Iterator
from textwrap import fill

from sparkdash.cli.output import LiveLine, format_table
from sparkdash.domain import phrases
from sparkdash.domain.engine import Engine, EngineState, Liveness
from sparkdash.domain.event import Measuring, Notice
from sparkdash.domain.memory import Guard
from sparkdash.domain.metric import EngineSample, Gpu, Memory, Metric, NodeSample, Sample
from sparkdash.domain.node import LOCAL, NodeState
from sparkdash.domain.request import Request
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap, SwapPhase, phases_of
from sparkdash.units import DASH, GIB, age, duration, gib, number, one_line, percent, tokens

LABEL = 10
COLUMNS = 80


def status_row(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{one_line(text)}"


def wrapped_rows(label: str, text: str) -> Iterator[str]:
    yield from fill(
        text, COLUMNS, initial_indent=f"{label:<{LABEL}}", subsequent_indent=" " * LABEL, break_long_words=False
    ).splitlines()


def time_since(then: float | None, world: Snapshot) -> str:
    return DASH if then is None else duration(max(0.0, world.at - then))


STALE_S = 5.0


def box_rows(world: Snapshot) -> Iterator[str]:
    if world.nodes:
        yield status_row("node", f"{world.daemon.host}  this box")
    yield from _box(world)
    for _, state in sorted(world.nodes.items()):
        yield from _node(state, world.sample.nodes.get(state.name) if world.sample else None, world)
    link = phrases.link_between(world.sample.nodes, world.nodes) if world.sample else None
    if link is not None:
        errors = phrases.link_errors(link)
        yield status_row(
            "link", f"{link.name}  {phrases.link_text(link)}{f'  {errors}' if errors else ''}{_age(world)}"
        )


def _node(state: NodeState, found: NodeSample | None, world: Snapshot) -> Iterator[str]:
    yield status_row("node", "  ".join(_node_words(state, found, world)))
    if phrases.is_silent(state):
        yield from wrapped_rows("", state.reason or "No answer; sparkdash tries again.")
    yield from _left(state)
    memory = found.memory if found else None
    if memory is None or found is None:
        yield status_row("memory", DASH)
        return
    old = world.at - found.at
    if phrases.is_silent(state):
        last = f"{gib(memory.available)} available of {gib(memory.total)}"
        yield status_row("memory", f"{DASH}  {duration(max(old, 0.0))} ago: {last}")
        return
    yield status_row("memory", _memory(memory) + (f"  ({duration(old)} ago)" if old > STALE_S else ""))
    if found.gpu:
        yield status_row("gpu", _gpu(found.gpu))


def _left(state: NodeState) -> Iterator[str]:
    """Rows of what a box that was away left behind."""
    if state.differs:
        yield from wrapped_rows("", f"It is back with {state.differs}; no engine over several boxes uses it.")
    for name in state.owed:
        yield from wrapped_rows("", f"{name} ends there as soon as the node answers.")


def _node_words(state: NodeState, found: NodeSample | None, world: Snapshot) -> Iterator[str]:
    yield state.name
    yield f"{state.status} {time_since(state.since, world)}"
    if state.link:
        link = phrases.used_link(found.links, state.link) if found else None
        yield f"link {state.link}" + (" down" if link is not None and link.up is False else "")
    if state.guarded:
        yield "memory guard runs"
    if world.daemon.simulated:
        yield "SIMULATED"


def _box(world: Snapshot) -> Iterator[str]:
    if world.sample and len(world.sample.engines) > 1 and world.sample.decode.value is not None:
        rate = phrases.figure_text(world.sample.decode, lambda value: number(value, 1))
        yield status_row("box", f"decode {rate} tok/s, all engines together")
    yield from _memory_rows(world)
    if world.guard:
        yield from _guard(world.guard, world)
    if world.sample and world.sample.gpu:
        yield from _gpu_rows(world.sample, world.sample.gpu)


def _memory_rows(world: Snapshot) -> Iterator[str]:
    memory = world.sample.memory if world.sample else None
    if memory is None:
        yield status_row("memory", DASH)
        return
    yield status_row("memory", _memory(memory) + _age(world))
    for each in memory.strangers:
        takes = ", ".join([gib(each.bytes), *(["a GPU"] if each.gpu else []), *(f"port {port}" for port in each.ports)])
        text = f"{each.name} ({each.image or 'no image'}) has {takes}; not started by sparkdash, left alone"
        yield from wrapped_rows("others", text)


def _gpu_rows(sample: Sample, gpu: Gpu) -> Iterator[str]:
    yield status_row("gpu", _gpu(gpu))
    if sample.low_power:
        yield from wrapped_rows(
            "", "stuck in its low-power state, which slows every engine: unplug the power for a minute"
        )


def _guard(guard: Guard, world: Snapshot) -> Iterator[str]:
    floors = guard.floors
    if floors is None:
        yield status_row("guard", "off" + (": the memory is simulated" if world.daemon.simulated else ""))
        return
    acts = f"{number(floors.hold / GIB, 1)} holds loads back, {number(floors.kill / GIB, 1)} kills"
    does = acts if guard.mode == "act" else "and does no more"
    level = guard.level if guard.since is None else f"{guard.level} for {time_since(guard.since, world)}"
    yield status_row("guard", f"{level}  under {gib(floors.warn)} warns, {does}")
    for kill in guard.kills[:1]:
        yield status_row(
            "", f"killed {kill.profile} {time_since(kill.at, world)} ago, at {gib(kill.available)} available"
        )


def _age(world: Snapshot) -> str:
    """Return the age of a stale sample: the box is sampled less often while nobody watches."""
    old = world.at - world.sample.at if world.sample else 0.0
    return f"  ({duration(old)} ago)" if old > STALE_S else ""


def _memory(memory: Memory) -> str:
    held = [size for size in memory.engines.values() if size is not None]
    engines = gib(sum(held)) if held or not memory.engines else DASH
    return f"{gib(memory.available)} available of {gib(memory.total)}  engines {engines}  reserve {gib(memory.reserve)}"


def _gpu(gpu: Gpu) -> str:
    return (
        f"{percent(gpu.utilization)}  {number(gpu.power_w, 0, ' W')}  {number(gpu.temperature_c, 0, ' °C')}  "
        f"{number(gpu.sm_clock_mhz, 0, ' MHz')}"
    )


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
    yield from _notices(world)
    if world.problems:
        yield status_row("profiles", f"{len(world.problems)} with problems; see `sparkdash profiles check`")


def _swaps(world: Snapshot) -> Iterator[str]:
    for swap in world.swaps_under_way:
        yield status_row("swap", swap_line(swap, world.at))
        if heard := phrases.heard_text(swap, world.at):
            yield from wrapped_rows("", f"{heard}: {swap.progress.detail}" if swap.progress else heard)
        if past := phrases.past_stages(swap):
            yield from wrapped_rows("", past)
    if world.swap is None:
        yield status_row("swap", DASH)


def _notices(world: Snapshot) -> Iterator[str]:
    newest: dict[str, Notice] = {}
    for notice in world.notices:  # what was told again has its last time alone
        if notice.at is None or notice.at >= world.daemon.started_at:  # `history` has those of earlier daemons
            newest.setdefault(notice.text, notice)
    for notice in list(newest.values())[:3]:
        ago = f" ({time_since(notice.at, world)} ago)" if notice.at is not None else ""
        yield from wrapped_rows(notice.level, notice.text + ago)


def _measuring(now: Measuring) -> Iterator[str]:
    left = f", about {duration(now.left_s)} left" if now.left_s is not None else ""
    yield status_row("bench", f"{now.run}  {percent(now.share)}{left}")
    yield status_row("", f"{now.arm}: {now.cell or now.doing}")


def swap_line(swap: Swap, now: float) -> str:
    """Describe a swap: "to gpt-oss-120b: load weights 63 %  38 % in 43s, about 1m40s left"."""
    goal = f"to {swap.target}" if swap.target else "stop"
    words = (f"{goal}: {phase_text(swap)}", phrases.wait_text(swap, now), time_text(swap, now))
    return "  ".join(filter(None, words))


def phase_text(swap: Swap) -> str:
    return swap.phase.value if swap.progress is None else f"{swap.phase.value} {phrases.stage_text(swap)}"


def time_text(swap: Swap, now: float) -> str:
    """Format progress and times: "38 % in 43s, about 1m40s left (1m20s to 2m10s)"."""
    share = f"{percent(swap.fraction)} in " if swap.fraction is not None else ""
    return share + ", ".join(filter(None, (age(now - swap.started_at), phrases.estimate_text(swap, now))))


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
            if step := phrases.step_share(engine, sample):
                yield status_row("step", f"link {step} of a step")


def _liveness(liveness: Liveness | None, world: Snapshot) -> Iterator[str]:
    if liveness is None or not phrases.is_told(liveness):
        return
    yield from wrapped_rows("liveness", f"{phrases.state_text(liveness, world.at)}: {liveness.why}")
    if step := phrases.step_text(liveness, world.at):
        yield status_row("", step)


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
        words.append(f"on {phrases.boxes_text(engine.nodes, world.daemon.host)}")
        words += [phrases.slow_box(engine, world), phrases.without_rdma(engine, world)]
    if world.is_outdated(engine.profile):
        words.append("file edited since")
    words.append(phrases.degraded_text(engine, world))
    return "  ".join(filter(None, words)) + ("  SIMULATED" if engine.simulated else "")


def _figures(sample: EngineSample, world: Snapshot) -> Iterator[str]:
    get = sample.get

    def shown(metric: Metric, digits: int = 0, unit: str = "") -> str:
        return phrases.figure_text(sample.figure(metric), lambda value: number(value, digits, unit))

    age = world.at - sample.at
    stale = f"  ({duration(age)} old)" if age > STALE_S else ""
    yield status_row(
        "speed",
        f"decode {shown(Metric.DECODE, 1, ' tok/s')} (each {shown(Metric.DECODE_EACH, 1)})  "
        f"prompt {shown(Metric.PROMPT_SPEED, 0, ' tok/s')}  ttft p50 {shown(Metric.TTFT_P50, 2, ' s')}{stale}",
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
        f"kv {percent(get(Metric.KV_USED))}{_of_capacity(get(Metric.KV_CAPACITY))}",
    )
    if get(Metric.ACCEPTANCE_LENGTH) is not None or sample.acceptance_at:
        places = " ".join(f"{share:.2f}" for share in sample.acceptance_at or ()) or DASH
        yield status_row("accept", f"{places}  mean acceptance length {number(get(Metric.ACCEPTANCE_LENGTH), 2)}")
    yield status_row("queue", f"running {shown(Metric.RUNNING)}  waiting {number(get(Metric.WAITING))}")


def _of_capacity(held: float | None) -> str:
    return "" if held is None else f" of {tokens(held)} tokens"


def _requests(world: Snapshot) -> Iterator[str]:
    yield status_row("requests", f"{len(world.requests)} in flight" if world.requests else "none in flight")
    if world.requests:
        head = ("client", "profile", "state", "prompt", "out", "ttft", "tok/s")
        rows = [_request(request, world) for request in world.requests.values()]
        yield from (f"  {line}" for line in format_table(head, rows, "<<<>>>>"))


def _request(request: Request, world: Snapshot) -> tuple[str, ...]:
    prompt, output, rate = request_figures(request, world)
    state = request_state(request, world)
    return (request.client, request.profile, state, prompt, output, number(request.ttft_s, 2), rate)


def request_state(request: Request, world: Snapshot, *, timed: bool = True) -> str:
    """Say what a request does, its place in the queue, and why it waits; the time of its phase if `timed`."""
    phase = phrases.request_phase(request, world.sample, world.at, timed=timed)
    place = f" #{request.position}" if request.position is not None else ""
    engine = world.engines.get(request.profile) if request.finished_at is None else None
    stuck = phrases.waiting_on(engine.liveness, world.at) if engine else ""
    why = phrases.wait_reason(request, world)
    return f"{phase}{place}{f', {stuck}' if stuck else why and f' {why}'}"


def request_figures(request: Request, world: Snapshot) -> tuple[str, str, str]:
    """Return the prompt's tokens, the output's, and the rate."""
    figures = phrases.figures_of_request(request, world.sample)
    prompt = phrases.about(tokens(figures.prompt), estimated=figures.prompt_estimated)
    output = phrases.about(tokens(figures.output), estimated=figures.output_estimated)
    return prompt, output, number(figures.tok_s, 1)


class SwapProgressLine:
    """Draws the swap to the profile `goal`; until that begins, the swap that is under way."""

    def __init__(self, goal: str) -> None:
        self._goal = goal
        self.line = LiveLine()
        self._waits: dict[SwapPhase, str] = {}
        """First waiting text of each phase."""

    def show(self, world: Snapshot) -> None:
        swap = world.swap_to(self._goal) or world.swap
        if swap is None:
            return
        if swap.target is not None and swap.target != self._goal:
            wait = f"{self._goal} waits for the swap {swap_line(swap, world.at)}"
            self.line.draw(wait, f"{self._goal} waits for the swap to {swap.target}")
        else:
            self.line.draw(swap_steps(swap, world.at), self._plain(swap, world.at))

    def _plain(self, swap: Swap, now: float) -> str:
        """Return text that changes only with phase and load stage, so that a log gets a dozen lines, not a thousand."""
        stage = f" {swap.progress.stage}" if swap.progress else ""
        if swap.phase not in self._waits and (waits := phrases.wait_text(swap, now)):
            self._waits[swap.phase] = f": {waits}"
        return f"{swap.phase.value}{stage}{self._waits.get(swap.phase, '')}"


def swap_steps(swap: Swap, now: float) -> str:
    """Format the steps: "drain stop reclaim preflight create [load weights 63 %] warm  38 % in 43s, about 1m40s left".

    A wait replaces the other steps: "drain  waits for 2 requests of a, cut in 1m40s  20s".
    """
    if waits := phrases.wait_text(swap, now):
        return f"{phase_text(swap)}  {waits}  {time_text(swap, now)}"
    words = [f"[{phase_text(swap)}]" if step is swap.phase else step.value for step in phases_of(swap)]
    return f"{' '.join(words)}  {time_text(swap, now)}"
