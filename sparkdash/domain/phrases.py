"""Phrases about swaps, engines, nodes, copies and repairs, which the command line and the screens share. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from sparkdash.domain.engine import Engine, EngineState, Incident, Liveness, LivenessState, RepairStep, RepairTime
from sparkdash.domain.images import CopyKind, CopyProgress, CopyStep
from sparkdash.domain.metric import EngineSample, Figure, Gpu, LinkSample, LiveRequest, Metric, NodeSample, Sample
from sparkdash.domain.node import LOCAL, NodeState, NodeStatus
from sparkdash.domain.profile import AUTO, Profile, ProfileSummary
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import KvBack, Plan, Start, Swap, SwapPhase
from sparkdash.units import DASH, age, bit_rate, counted, duration, gib, natural, number, percent, size

if TYPE_CHECKING:
    from sparkdash.domain.history import Replay


def family_of(profile: ProfileSummary) -> str:
    return profile.name.partition("/")[0]


def by_family(profiles: Iterable[ProfileSummary]) -> list[ProfileSummary]:
    """Sort by family in natural order, the base before its variants; families that cannot run come last."""
    listed = list(profiles)
    able = {family_of(profile) for profile in listed if profile.cannot_run is None}
    return sorted(
        listed,
        key=lambda one: (family_of(one) not in able, natural(family_of(one)), "/" in one.name, natural(one.name)),
    )


SILENT_S = 10.0
"""Silence in the middle of an answer that is told."""
ABOUT = "~"
_PHASES = {RequestState.WAITING: "waits", RequestState.PREFILL: "prefill", RequestState.STREAMING: "decodes"}


class RequestFigures(NamedTuple):
    """Token counts and rate of one request, and whether each is an estimate."""

    prompt: int | None
    prompt_estimated: bool
    output: int | None
    output_estimated: bool
    tok_s: float | None


def live_request(request: Request, sample: Sample | None) -> LiveRequest | None:
    """Return the progress of a running request; None for an ended one, and before its first sample."""
    if sample is None or request.state not in (RequestState.PREFILL, RequestState.STREAMING):
        return None
    return sample.requests.get(request.id)


def figures_of_request(request: Request, sample: Sample | None) -> RequestFigures:
    live = live_request(request, sample)
    guessed = request.prompt_tokens is None and request.finished_at is None
    prompt = request.prompt_estimate if guessed else request.prompt_tokens
    if live is None or live.output_tokens is None or request.state is not RequestState.STREAMING:
        return RequestFigures(prompt, guessed, *output_of_request(request), request.decode_tok_s)
    return RequestFigures(prompt, guessed, live.output_tokens, live.estimated, live.tok_s)


def output_of_request(request: Request) -> tuple[int | None, bool]:
    """Return the output tokens of an ended request, and whether they are estimated, as those of a cut answer are."""
    if request.completion_tokens is not None or request.completion_estimate is None:
        return request.completion_tokens, False
    return request.completion_estimate, True


def about(text: str, *, estimated: bool) -> str:
    return f"{ABOUT}{text}" if estimated and text != DASH else text


def figure_text(figure: Figure, text: Callable[[float | None], str]) -> str:
    """Format a figure; "~" marks one that only the gateway tells."""
    return about(text(figure.value), estimated=figure.estimated)


def held_text(request: Request, now: float) -> str:
    """Say who holds a waiting request off: "a is in use, 1m20s at most"; empty where nobody does."""
    if request.held_by is None or request.state is not RequestState.WAITING:
        return ""
    limit = "" if request.held_until is None else f", {age(max(0.0, request.held_until - now))} at most"
    return f"{request.held_by} {'are' if ',' in request.held_by else 'is'} in use{limit}"


def wait_reason(request: Request, world: Snapshot) -> str:
    """Name what a waiting request waits for: "load 63 %", "a is in use, 20s at most", "queue"; empty where unknown."""
    if request.state is not RequestState.WAITING:
        return ""
    if held := held_text(request, world.at):
        return held
    swap = world.swap_to(request.profile) or (world.swap if request.profile == AUTO else None)
    if swap is not None:
        share = f" {percent(swap.fraction)}" if swap.fraction is not None else ""
        return f"{swap.phase.value}{share}"
    return "queue" if request.profile in world.engines else ""


def request_phase(request: Request, sample: Sample | None, now: float, *, timed: bool = True) -> str:
    """Name what an open request does: "waits", "prefill 3s" (its time if `timed`), "no token 40s"; else its state."""
    phase = _PHASES.get(request.state)
    if phase is None:
        return request.state.value
    live = live_request(request, sample)
    if live is not None and request.state is RequestState.STREAMING and (live.silent_s or 0.0) >= SILENT_S:
        silent = (live.silent_s or 0.0) + max(0.0, now - (sample.at if sample else now))
        return f"no token {age(silent)}"
    if not timed or request.granted_at is None:
        return phase
    return f"{phase} {age(max(0.0, now - request.granted_at))}"


_ENDS = {SwapPhase.DRAIN: "cut", SwapPhase.STOP: "killed"}
"""Consequence for those who are waited for too long."""


class TimeLeft(NamedTuple):
    """Seconds that a swap should still take, without the rest of a drain."""

    s: float
    low_s: float | None
    high_s: float | None


def time_left(swap: Swap, now: float) -> TimeLeft | None:
    """Count the estimate on to `now`; None before the first such swap. All zero: longer than ever before."""
    if swap.eta_s is None or swap.eta_at is None:
        return None
    passed = 0.0 if swap.phase in (SwapPhase.COPY, SwapPhase.DRAIN) else max(0.0, now - swap.eta_at)
    low, high = swap.eta_low_s, swap.eta_high_s
    return TimeLeft(
        max(0.0, swap.eta_s - passed),
        None if low is None else max(0.0, low - passed),
        None if high is None else max(0.0, high - passed),
    )


def stage_text(swap: Swap) -> str:
    """Word the load's stage and share, such as "weights 62 %"; the phase where the log names none."""
    if swap.progress is None:
        return swap.phase.value
    share = f" {percent(swap.progress.fraction)}" if swap.progress.fraction is not None else ""
    return swap.progress.stage + share


FIRST_ON_IMAGE = "first start on this image"


def past_stages(swap: Swap) -> str:
    """Name the ended stages of a load: "first start on this image, after process 12s, imports 8.2s"."""
    if swap.start is None:
        return ""
    ended = [f"{step.name} {duration(step.s)}" for step in swap.start.stages]
    first = [FIRST_ON_IMAGE] if swap.start.first_on_image else []
    return ", ".join([*first, f"after {', '.join(ended)}"] if ended else first)


def wait_text(swap: Swap, now: float) -> str:
    """Word the wait, such as "waits for 2 requests of a, cut in 1m40s"; empty without one."""
    if swap.waits_for is None:
        return ""
    words = f"waits for {swap.waits_for}"
    if swap.until is None:
        return words
    end, left_s = _ENDS.get(swap.phase, "given up"), swap.until - now
    return f"{words}, {end} in {age(left_s)}" if left_s >= 0 else f"{words}, {end} {age(-left_s)} ago"


def still_text(swap: Swap, now: float) -> str:
    """Word the standstill: "no progress for 2m10s, stops in 17m50s"; empty while the load moves."""
    if swap.still_since is None:
        return ""
    words = f"no progress for {age(now - swap.still_since)}"
    return words if swap.gives_up_at is None else f"{words}, stops in {age(max(0.0, swap.gives_up_at - now))}"


def heard_text(swap: Swap, now: float) -> str:
    """Word the age of the log's last line, such as "last line 3s ago"; empty before the first, and after the load."""
    if swap.heard_at is None or swap.phase is not SwapPhase.LOAD:
        return ""
    return f"last line {age(max(0.0, now - swap.heard_at))} ago"


def start_facts(start: Start) -> list[str]:
    """Say what a start found and took: "first start on this image", "61.0 GiB from a disk at 420 MiB/s"."""
    weights, disk = next((step.s for step in start.stages if step.name == "weights"), 0.0), start.disk_bytes or 0
    rate = f", {size(int(disk / weights))}/s" if weights and disk > (start.cached_bytes or 0) else ""
    told = (
        {True: "graphs compiled anew", False: "graphs from the compile cache", None: ""}[start.compiled],
        f"{size(start.disk_bytes)} read from a disk{rate}" if start.disk_bytes is not None else "",
        f"{size(start.cached_bytes)} read from the page cache" if start.cached_bytes is not None else "",
        f"{size(start.peak_bytes)} of memory at most" if start.peak_bytes is not None else "",
        kv_back_text(start.kv_back) if start.kv_back else "",
    )
    marks = ((FIRST_ON_IMAGE, start.first_on_image), ("io_uring allowed", start.io_uring))
    return [*(mark for mark, holds in marks if holds), *filter(None, told)]


def kv_back_text(back: KvBack) -> str:
    """Word what came back: "100,000 tokens back in 4.0s instead of 3m10s"."""
    return f"{back.tokens:,} tokens back in {duration(back.s)} instead of {duration(back.prefill_s)}"


def start_text(start: Start) -> str:
    """Name the two longest stages: "weights 2m32s, compile 1m32s, first start on this image"."""
    longest = [f"{step.name} {duration(step.s)}" for step in sorted(start.stages, key=lambda step: -step.s)[:2]]
    return ", ".join([*longest, FIRST_ON_IMAGE] if start.first_on_image else longest)


def estimate_text(swap: Swap, now: float) -> str:
    """Word the estimate: "about 1m40s left (1m20s to 2m10s)", "longer than usual", "first load here", "stalled"."""
    if swap.target is None:
        return ""
    if swap.still_since is not None:
        return f"stalled: {still_text(swap, now)}"
    rest = time_left(swap, now)
    if rest is None:
        return "first load here" + (f", {age(swap.reads_s)} or more to read its weights" if swap.reads_s else "")
    if not rest.s and not rest.high_s:
        return "longer than usual"
    spread = ""
    if rest.low_s is not None and rest.high_s is not None:
        spread = f" ({age(rest.low_s)} to {age(rest.high_s)})"
    after = f" after the {swap.phase}" if swap.phase in (SwapPhase.COPY, SwapPhase.DRAIN) else ""
    return f"about {age(rest.s)} left{after}{spread}{_caches_text(swap)}"


def _caches_text(swap: Swap) -> str:
    if swap.start is None or not swap.other_caches:
        return ""
    return ", or more: its caches are empty" if swap.start.caches_empty else ", or less: its caches are kept"


def progress_text(swap: Swap, now: float) -> str:
    """Word stage and estimate: "weights 62 % · about 1m40s left (1m20s to 2m10s)"."""
    words = [stage_text(swap), estimate_text(swap, now)]
    if swap.target is not None and swap.eta_s is None:
        words[1] += f", {age(now - swap.started_at)} so far"
    return " · ".join(filter(None, words))


def waiting_text(swap: Swap | None, profile: str, now: float) -> str:
    """Word what a request for `profile` waits for; `auto` matches any target. Empty when unknown."""
    if swap is None:
        return ""
    if swap.target is None:
        return f"{', '.join(swap.evict)} stops"
    words = f"{swap.target}: {progress_text(swap, now)}"
    return words if profile in (swap.target, AUTO) else f"{profile} comes after {words}"


QUIET_BYTES_S = 125_000
"""Traffic below this (1 Mb/s) is no engine's: ssh and the clocks of both boxes talk all the time."""


def last_good_lines(profile: Profile, problems: Iterable[str]) -> list[str]:
    """Say that the profile's file has a problem now, so that another version of it is used; empty without one."""
    file, told = profile.source.rpartition(":")[0], tuple(problems)
    found = next((one for one in told if file and one.startswith(f"{file}:")), None)
    if found is None:
        broken = [one for one in told if PurePath(one.partition(":")[0]).stem == profile.family]
        return [f"warning: {broken[0]} {profile.name} is taken from {file} meanwhile."] if broken else []
    taken = f"{profile.name} is taken from the last version of this file that was correct. Fix it, then repeat this."
    return [f"warning: {found}", taken]


def box_name(node: str, host: str) -> str:
    """Return the name that people know a node by; `host` is this box's host name."""
    return host if node == LOCAL else node


def boxes_text(nodes: Iterable[str], host: str) -> str:
    return " + ".join(box_name(node, host) for node in nodes)


BUSY_GPU, FAR_BELOW = 0.5, 0.8
"""Utilization of a GPU that computes, and the share of the others' clock below which a box holds them up."""


def slow_box(engine: Engine, world: Snapshot) -> str:
    """Name the box whose GPU is clocked far below those of the engine's other boxes, which wait for it; else empty."""
    clocks = _busy_clocks(engine.nodes, world.sample) if world.sample else {}
    if len(clocks) < max(2, len(engine.nodes)):
        return ""
    slow, *others = sorted(clocks, key=clocks.__getitem__)
    share = clocks[slow] / median(clocks[name] for name in others)
    name = box_name(slow, world.daemon.host)
    told = f"{name} is {percent(1 - share)} slower than the others: clock {clocks[slow] / 1000:.1f} GHz"
    return told if share < FAR_BELOW else ""


def _busy_clocks(nodes: Iterable[str], sample: Sample) -> dict[str, float]:
    gpus = {LOCAL: sample.gpu} | {name: one.gpu for name, one in sample.nodes.items()}
    found = [(name, gpus.get(name) or Gpu()) for name in nodes]
    return {name: gpu.sm_clock_mhz for name, gpu in found if gpu.sm_clock_mhz and (gpu.utilization or 0) >= BUSY_GPU}


SOCKETS_BYTES_S = 1_000_000
"""Traffic of an interface, beside RDMA ports that stand still, from which it is the tensors'."""


def without_rdma(engine: Engine, world: Snapshot) -> str:
    """Name the interface that carries an engine's tensors while its box's RDMA ports stand still; else empty.

    NCCL falls back to sockets without a word: 6 tok/s in place of 10.5 on three Sparks (tonyd2wild/Minimax-M3).
    """
    sample = world.sample
    figures = sample.engines.get(engine.profile) if sample else None
    if sample is None or figures is None or len(engine.nodes) == 1 or not figures.get(Metric.DECODE):
        return ""
    for node in filter(sample.nodes.__contains__, engine.nodes):
        if link := _sockets(sample.nodes[node].links):
            return f"not by RDMA: {link.name} of {box_name(node, world.daemon.host)} carries the tensors"
    return ""


def _sockets(links: Sequence[LinkSample]) -> LinkSample | None:
    """Return the busiest interface, if it is busy while all RDMA ports are known to stand still."""
    ports = [link for link in links if link.rdma and link.up]
    if not ports or not all(map(_is_still, ports)):
        return None
    busiest = max((link for link in links if not link.rdma), key=traffic, default=ports[0])
    return busiest if traffic(busiest) >= SOCKETS_BYTES_S else None


def _is_still(port: LinkSample) -> bool:
    return port.sent_bytes_s is not None and traffic(port) < QUIET_BYTES_S


def degraded_text(engine: Engine, world: Snapshot) -> str:
    """Say without which boxes an engine runs, or for which it ended, while they are away; empty otherwise."""
    away = [state.name for state in world.nodes.values() if is_silent(state) or state.differs]
    profile = world.profile(engine.profile) if away else None
    if profile is None:
        return ""
    if engine.state is EngineState.READY and len(engine.nodes) < profile.nodes:
        return f"degraded: {len(engine.nodes)} of {profile.nodes} boxes, without {' and '.join(away)}"
    if engine.state is not EngineState.FAILED or not (lost := " and ".join(filter(away.__contains__, engine.nodes))):
        return ""
    instead = "".join(f"; {name} answers for it" for name in profile.fallbacks[:1])
    return f"degraded: {lost} is gone{instead}"


def plan_boxes(plan: Plan, host: str, *, several: bool) -> str:
    """Name the boxes that a plan is for; empty with one box (not `several`), or while none is chosen."""
    return boxes_text(plan.nodes, host) if several or set(plan.nodes) - {LOCAL} else ""


def now_available(plan: Plan, host: str) -> str:
    if len(plan.on_nodes) < 2:
        return gib(plan.now_bytes)
    return ", ".join(f"{gib(one.now_bytes)} on {box_name(one.node, host)}" for one in plan.on_nodes)


def then_available(plan: Plan, host: str) -> str:
    if len(plan.on_nodes) < 2:
        return gib(plan.available_bytes)
    return ", ".join(f"{gib(one.available_bytes)} on {box_name(one.node, host)}" for one in plan.on_nodes)


def plan_facts(plan: Plan, world: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield label and text of where a plan runs, the memory that it finds, who leaves and stays, and its time."""
    host, each = world.daemon.host, " on each" if len(plan.nodes) > 1 else ""
    if boxes := plan_boxes(plan, host, several=bool(world.nodes)):
        yield "runs on", boxes + (f", the need{each}" if each else "")
    yield "available now", now_available(plan, host)
    yield "reserve", f"{gib(plan.reserve_bytes)}, kept free{each} (`reserve_gib` in config.toml)"
    yield from (("leaves", f"{name}: {plan.reasons.get(name, '')}") for name in plan.evict)
    yield from (("stays", name) for name in plan.beside)
    if plan.evict:
        yield "available then", f"{then_available(plan, host)}, without the reserve"
    if plan.expected_s:
        yield "takes about", duration(plan.expected_s)


def is_silent(state: NodeState) -> bool:
    """Whether the node gives no figures now, so that what is known of it is the past."""
    return state.status is not NodeStatus.REACHABLE


def traffic(link: LinkSample) -> float:
    return (link.received_bytes_s or 0.0) + (link.sent_bytes_s or 0.0)


def used_link(links: Iterable[LinkSample], name: str | None = None) -> LinkSample | None:
    """Return the link that carries most now, else the one of that name, else the fastest that is up; None without."""
    known = list(links)
    busiest = max(known, key=traffic, default=None)
    if busiest is not None and traffic(busiest) >= QUIET_BYTES_S:
        return busiest
    named = next((link for link in known if link.name == name), None)
    return named or max(known, key=lambda link: (bool(link.up), link.rate_gbit_s or 0.0), default=None)


def link_between(samples: Mapping[str, NodeSample], states: Mapping[str, NodeState]) -> LinkSample | None:
    """Return the link of this box towards the others; read at the other end, where this one's is not known."""
    if here := samples.get(LOCAL):
        return used_link(here.links)
    for name, state in states.items():
        there = used_link(samples[name].links, state.link) if name in samples else None
        if there is not None:
            return there.replace(received_bytes_s=there.sent_bytes_s, sent_bytes_s=there.received_bytes_s)
    return None


def link_text(link: LinkSample) -> str:
    """Describe a link: "RDMA 3.1 Gb/s in, 3.0 Gb/s out, 1.6 % of 200 Gb/s", "200 Gb/s, idle", "down"."""
    if link.up is False:
        return "down"
    of = f"{number(link.rate_gbit_s)} Gb/s" if link.rate_gbit_s else ""
    if link.received_bytes_s is None and link.sent_bytes_s is None:
        return of or "up"
    kind = "RDMA" if link.rdma else "TCP"
    if traffic(link) < QUIET_BYTES_S:
        return f"{of}, idle" if of else "idle"
    rates = f"{kind} {bit_rate(link.received_bytes_s)} in, {bit_rate(link.sent_bytes_s)} out"
    share = link_share(link)
    return rates if share is None else f"{rates}, {percent(share, 0 if share >= 0.0995 else 1)} of {of}"


def link_share(link: LinkSample) -> float | None:
    """Return the busier direction as a share of the link's rate; None while one of the two is unknown."""
    if not link.rate_gbit_s or (link.received_bytes_s is None and link.sent_bytes_s is None):
        return None
    return max(link.received_bytes_s or 0.0, link.sent_bytes_s or 0.0) * 8 / (link.rate_gbit_s * 1e9)


def step_share(engine: Engine, sample: EngineSample | None) -> str:
    """Word the link's least share of a step, "≥ 1.6 %"; DASH: unknown. Empty on one box, or while idle."""
    if len(engine.nodes) < 2 or sample is None or not sample.get(Metric.RUNNING):
        return ""
    share = sample.get(Metric.LINK_SHARE)
    return DASH if share is None else f"≥ {percent(share, 0 if share >= 0.0995 else 1)}"


def link_errors(link: LinkSample) -> str:
    return counted(link.errors, "error") if link.errors else ""


def copy_wait(progress: CopyProgress) -> str:
    """Word what a swap waits for: "weights m to reach spark2: 12 GiB of 61 GiB, 480 MiB/s, 1m40s left"."""
    what = f"{progress.kind} {progress.name}"
    if progress.step is CopyStep.LOAD:
        return f"{what} to be loaded on {progress.node}"
    if progress.step is CopyStep.CHECK:
        return f"{what} to be compared with {progress.node}"
    return f"{what} to reach {progress.node}{_bytes(progress)}"


def copy_line(progress: CopyProgress) -> str:
    """Word the step: "send  43 %  26 GiB of 61 GiB  98 MiB/s  6m02s left"."""
    if not progress.total_bytes or progress.step is CopyStep.CHECK:  # rsync does not tell how far its hashing is
        return _COPY_STEPS[progress.step]
    share = percent(progress.came_bytes / progress.total_bytes)
    rate = f"  {size(int(progress.bytes_per_s))}/s" if progress.bytes_per_s else ""
    left = f"  {duration(progress.eta_s)} left" if progress.eta_s is not None else ""
    came = f"{size(progress.came_bytes)} of {size(progress.total_bytes)}"
    return f"{_COPY_STEPS[progress.step]}  {share:>5}  {came}{rate}{left}"


def copy_share(progress: CopyProgress) -> float | None:
    """Share of the present step, 0..1; None while unknown."""
    return progress.came_bytes / progress.total_bytes if progress.total_bytes else None


def copied_text(progress: CopyProgress) -> str:
    noun = "The image" if progress.kind is CopyKind.IMAGE else "The weights"
    verb = "is" if progress.kind is CopyKind.IMAGE else "are"
    return f"{noun} {progress.name} {verb} on {progress.node}."


_COPY_STEPS = {CopyStep.CHECK: "compare", CopyStep.SEND: "send", CopyStep.LOAD: "load"}


def _bytes(progress: CopyProgress) -> str:
    if not progress.total_bytes:
        return ""
    rate = f", {size(int(progress.bytes_per_s))}/s" if progress.bytes_per_s else ""
    left = f", {duration(progress.eta_s)} left" if progress.eta_s is not None else ""
    return f": {size(progress.came_bytes)} of {size(progress.total_bytes)}{rate}{left}"


_STEPS = {
    RepairStep.WATCH: "only watched",
    RepairStep.EVIDENCE: "taking evidence",
    RepairStep.CANCEL: "requests cancelled, looking again",
    RepairStep.END: "ending it, then it starts again",
}


def step_text(liveness: Liveness, now: float) -> str:
    """Word the current step, such as "requests cancelled, looking again 40s"; empty while nothing is done."""
    if liveness.step is None:
        return ""
    since = "" if liveness.step_since is None else f" {age(max(0.0, now - liveness.step_since))}"
    return _STEPS[liveness.step] + since


def state_text(liveness: Liveness, now: float) -> str:
    """Word the state, such as "stuck for 2m10s"; only the state's name for an engine that moves."""
    if liveness.state in (LivenessState.BUSY, LivenessState.PREFILL):
        return liveness.state.value
    return f"{liveness.state.value} for {age(max(0.0, now - liveness.since))}"


def waiting_on(liveness: Liveness | None, now: float) -> str:
    """Say what a request waits for while its engine is stuck; empty for any other engine."""
    if liveness is None or liveness.state is not LivenessState.STUCK:
        return ""
    step = step_text(liveness, now)
    return f"engine stuck: {step}" if step else f"engine {state_text(liveness, now)}"


def is_told(liveness: Liveness | None) -> bool:
    """Whether the liveness is worth showing: an engine that has stood still for a while, for any reason."""
    moves = (LivenessState.BUSY, LivenessState.PREFILL)
    return liveness is not None and (liveness.state not in moves or bool(liveness.why))


def repair_text(time: RepairTime) -> str:
    """Word the mean time to repair: "3 repairs, 4m12s on average"."""
    return f"{time.n} repair{'s' * (time.n != 1)}, {duration(time.mean_s)} on average"


def end_text(incident: Incident, now: float) -> str:
    """Word the outcome of an incident: "restarted after 4m12s", or the current step of an open one."""
    if incident.ended_at is not None and incident.end is not None:
        return f"{incident.end.value} after {duration(incident.ended_at - incident.began)}"
    step = incident.steps[-1] if incident.steps else None
    return "open" if step is None else f"{_STEPS[step.step]} {age(max(0.0, now - step.at))}"


_FIGURES: tuple[tuple[str, Callable[[Request], str]], ...] = (
    ("ttft", lambda one: _seconds(one.ttft_s)),
    ("decode tok/s", lambda one: number(one.decode_tok_s, 1)),
    ("in the engine", lambda one: _seconds(_served(one))),
    ("prompt tokens", lambda one: number(one.prompt_tokens)),
    ("cached tokens", lambda one: number(one.cached_tokens)),
    ("output tokens", lambda one: number(one.completion_tokens)),
    ("reasoning", lambda one: number(one.reasoning_tokens)),
    ("finish reason", lambda one: one.error or one.finish_reason or DASH),
)


def figure_rows(replay: "Replay") -> list[tuple[str, str, str]]:
    """Return each figure with its value in the captured request and in the replay."""
    sides = (replay.original, replay.answer)
    rows = [(name, *(DASH if one is None else text(one) for one in sides)) for name, text in _FIGURES]
    return [(name, before, after) for name, before, after in rows]


def match_text(replay: "Replay") -> str:
    """Say whether the answers are the same, or why that is not known; empty before the replay."""
    match, answer = replay.match, replay.answer
    if answer is None:
        return ""
    if match is not None and match.identical:
        return f"The answers are identical: {match.before} characters."
    if match is not None:
        return (
            f"The answers differ from character {match.differs_at} on;"
            f" the first has {match.before} characters, the replay {match.after}."
        )
    if answer.state is not RequestState.DONE:
        return f"The replay gave no whole answer: {answer.error or answer.state.value}."
    return "Whether the answers are the same is not known: the first one was not kept."


def caution_text(replay: "Replay") -> str:
    """Say what makes the replay differ from the request; empty where nothing does."""
    return "The captured body lacks text that looked like a secret." if replay.redacted else ""


def _served(one: Request) -> float | None:
    return None if one.granted_at is None or one.finished_at is None else one.finished_at - one.granted_at


def _seconds(value: float | None) -> str:
    return duration(value) if value is None or value >= 10 else f"{value:.2f}s"
