"""Snapshot: the whole state at event number `seq`; `apply`, its only transition, for the bus and for mirrors. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from sparkdash.domain import event as facts
from sparkdash.domain.base import Frozen
from sparkdash.domain.engine import Engine, EngineState, Incident, Parked, Repairs
from sparkdash.domain.event import Event, Level, Measuring, Notice, RequestChanged, SampleTaken
from sparkdash.domain.memory import Guard
from sparkdash.domain.metric import Sample
from sparkdash.domain.node import NodeState
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.request import ASIDES, Candidate, Request, RequestState, Task, meant_by_auto
from sparkdash.domain.swap import DefaultProfile, Swap

FIGURE_WINDOW = 20
"""Requests behind a profile's median speeds."""


class Figures(Frozen):
    """Speeds of one profile on this box, kept while another runs. Rates in tokens per second."""

    rates: tuple[float, ...] = ()
    ttfts: tuple[float, ...] = ()
    best: float | None = None
    load_s: float | None = None
    at: float | None = None
    """Time of the newest rate, Unix seconds."""

    @property
    def decode_tok_s(self) -> float | None:
        """Median decode rate of the last requests that had their engine to themselves."""
        return median(self.rates) if self.rates else None

    @property
    def ttft_s(self) -> float | None:
        """Median time to first token of the last requests."""
        return median(self.ttfts) if self.ttfts else None


def count_requests(
    figures: dict[str, Figures], ended: Sequence[Request], seen: Sequence[Request]
) -> dict[str, Figures]:
    """Count ended requests in; beside `seen`, open ones and then the newest, they may have run."""
    served: defaultdict[str, list[Request]] = defaultdict(list)
    done = RequestState.DONE
    for request in ended:
        if request.state is done:
            served[request.profile].append(request)
    return {**figures, **{name: _grown(figures.get(name, Figures()), those, seen) for name, those in served.items()}}


def _ran_alone(one: Request, seen: Sequence[Request]) -> bool:
    """Whether the engine served nobody else meanwhile: only then its rate is one that `n=1` compares with."""
    begin, end = one.granted_at or 0.0, one.finished_at or 0.0
    for other in seen:
        if other.finished_at is not None and other.finished_at <= begin:
            break  # as did all that follow
        same = other.profile == one.profile and other.node == one.node and other.id != one.id
        if same and other.granted_at is not None and other.granted_at < end:
            return False
    return True


def _grown(old: Figures, done: Sequence[Request], seen: Sequence[Request]) -> Figures:
    rates = [each.decode_tok_s for each in done if each.decode_tok_s is not None]
    alone = [each.decode_tok_s for each in done if each.decode_tok_s is not None and _ran_alone(each, seen)]
    ttfts = [each.ttft_s for each in done if each.ttft_s is not None]
    return old.replace(
        at=done[-1].finished_at,
        rates=(*old.rates, *alone)[-FIGURE_WINDOW:],
        best=max(old.best or 0.0, *rates) if rates else old.best,
        ttfts=(*old.ttfts, *ttfts)[-FIGURE_WINDOW:],
    )


RECENT_REQUESTS = 50
RECENT_SWAPS = 20
RECENT_NOTICES = 50

OPEN = frozenset({RequestState.WAITING, RequestState.PREFILL, RequestState.STREAMING})

Assigned = (
    facts.ProfilesChanged
    | facts.ToggleChanged
    | facts.GuardChanged
    | facts.ParkedChanged
    | facts.UnadoptedChanged
    | facts.IncidentsChanged
    | facts.MeasuringChanged
    | facts.NodesChanged
    | facts.DefaultChanged
)
"""Facts whose values replace whole fields of the snapshot."""


class DaemonInfo(Frozen):
    """Identity of the serving daemon."""

    version: str
    host: str
    pid: int
    started_at: float
    runtime: str
    """podman, docker, process, or none."""
    url: str
    """Base URL for clients, with /v1."""
    simulated: bool = False


_ENDS = {
    "low_power": "low_power_over",
    "store_unusable": "store_written",
    "store_waits": "store_written",
    "link_down": "link_back",
    "link_lossy": "link_back",
}
"""Code of the notice that ends another, by the other's code."""


class Snapshot(Frozen):
    """State of the system at event `seq`."""

    seq: int
    at: float
    daemon: DaemonInfo
    profiles: tuple[ProfileSummary, ...] = ()
    problems: tuple[str, ...] = ()
    engines: dict[str, Engine] = {}
    parked: dict[str, Parked] = {}
    unadopted: tuple[str, ...] = ()
    """Profiles with an engine of an earlier daemon that could not be adopted, since their files cannot be read."""
    swap: Swap | None = None
    swaps_beside: tuple[Swap, ...] = ()
    swaps: tuple[Swap, ...] = ()
    requests: dict[str, Request] = {}
    """Open requests by id, in order of arrival."""
    recent: tuple[Request, ...] = ()
    sample: Sample | None = None
    figures: dict[str, Figures] = {}
    toggle_a: str | None = None
    toggle_b: str | None = None
    guard: Guard | None = None
    """Memory guard; None before its start."""
    incidents: tuple[Incident, ...] = ()
    repairs: Repairs = Repairs.model_construct()
    """Mean time to repair, over all kept incidents."""
    measuring: Measuring | None = None
    """Bench run in progress. It reports every few seconds: a silent one has died."""
    nodes: dict[str, NodeState] = {}
    """Other nodes by name; empty with this box alone."""
    default: DefaultProfile | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def active(self) -> Engine | None:
        """Engine that `auto` means for text, to a client without a previous request."""
        return self.engines.get(self.auto(Task.GENERATE) or "")

    def auto(self, task: Task | None) -> str | None:
        """Return the profile that `auto` means for this task, to a client without a previous request."""
        ready = [e for e in self.engines.values() if e.state.is_serving]
        return meant_by_auto(task, [Candidate(e.profile, e.does, e.asked_at, e.ready_at or 0.0) for e in ready])

    @property
    def swaps_under_way(self) -> tuple[Swap, ...]:
        return (self.swap, *self.swaps_beside) if self.swap else ()

    def swap_to(self, profile: str) -> Swap | None:
        return next((swap for swap in self.swaps_under_way if swap.target == profile), None)

    def profile(self, name: str) -> ProfileSummary | None:
        return next((p for p in self.profiles if p.name == name), None)

    def trouble(self, since: float) -> Notice | None:
        """Return the newest warning or error after `since` whose cause is not known to be gone."""
        told = (one for one in self.notices if one.level is not Level.INFO and (one.at or 0.0) > since)
        return next((one for one in told if not self._is_over(one)), None)

    def _is_over(self, notice: Notice) -> bool:
        """Whether what ends the notice's cause was told since, or its failed engine came back."""
        at, engine = notice.at or 0.0, self.engines.get(notice.profile or "")
        if engine is not None and (engine.ready_at or 0.0) > at and notice.code != "orphan_stuck":
            return notice.level is Level.ERROR or notice.code == "engine_unreachable"
        later = self.notices[: self.notices.index(notice)]  # the newest is the first
        return any(one.code == _ENDS.get(notice.code) for one in later)

    def is_outdated(self, name: str) -> bool:
        """Whether this profile's engine runs an older version of its file. False for a removed profile."""
        engine, profile = self.engines.get(name), self.profile(name)
        if engine is None or profile is None or engine.state is EngineState.FAILED:
            return False
        return engine.fingerprint not in profile.fingerprints


def apply(snapshot: Snapshot, event: Event) -> Snapshot:
    """Return the state after `event`. Raises ValueError: one is missing between; read a new snapshot."""
    if event.seq <= snapshot.seq:
        return snapshot
    if event.seq != snapshot.seq + 1 and not isinstance(event.fact, SampleTaken):
        raise ValueError(f"event {event.seq} does not follow {snapshot.seq}")
    return _changed(snapshot.replace(seq=event.seq, at=event.at), event)


def _changed(snapshot: Snapshot, event: Event) -> Snapshot:
    match event.fact:
        case facts.EngineChanged(engine=engine):
            return _engine(snapshot, engine)
        case facts.SwapChanged(swap=swap):
            return _swap(snapshot, swap)
        case RequestChanged(request=request):
            return _requests(snapshot, (request,))
        case SampleTaken(sample=sample):
            return snapshot.replace(sample=sample)
        case facts.Withheld():
            return snapshot
        case Notice() as notice:
            dated = notice.replace(at=event.at)
            return snapshot.replace(notices=(dated, *snapshot.notices)[:RECENT_NOTICES])
        case fact:
            return _assigned(snapshot, fact)


def _assigned(snapshot: Snapshot, fact: Assigned) -> Snapshot:
    match fact:
        case facts.ProfilesChanged(profiles=profiles, problems=problems):
            return snapshot.replace(profiles=profiles, problems=problems)
        case facts.ToggleChanged(a=a, b=b):
            return snapshot.replace(toggle_a=a, toggle_b=b)
        case facts.GuardChanged(guard=guard):
            return snapshot.replace(guard=guard)
        case facts.ParkedChanged(parked=parked):
            return snapshot.replace(parked=parked)
        case facts.UnadoptedChanged(profiles=unadopted):
            return snapshot.replace(unadopted=unadopted)
        case facts.IncidentsChanged(incidents=incidents, repairs=repairs):
            return snapshot.replace(incidents=incidents, repairs=repairs)
        case facts.MeasuringChanged(measuring=measuring):
            return snapshot.replace(measuring=measuring)
        case facts.NodesChanged(nodes=nodes):
            return snapshot.replace(nodes=nodes)
        case facts.DefaultChanged(default=default):
            return snapshot.replace(default=default)


def _engine(snapshot: Snapshot, engine: Engine) -> Snapshot:
    engines = {name: e for name, e in snapshot.engines.items() if name != engine.profile}
    if engine.state is not EngineState.ABSENT:
        engines[engine.profile] = engine
    figures = snapshot.figures
    if engine.state is EngineState.READY and engine.load_s is not None:
        old = figures.get(engine.profile, Figures())
        figures = {**figures, engine.profile: old.replace(load_s=engine.load_s)}
    return snapshot.replace(engines=engines, figures=figures)


def _swap(snapshot: Snapshot, swap: Swap) -> Snapshot:
    under_way = {one.id: one for one in snapshot.swaps_under_way} | {swap.id: swap}
    if swap.ended_at is not None:
        del under_way[swap.id]
        snapshot = snapshot.replace(swaps=(swap, *snapshot.swaps)[:RECENT_SWAPS])
    first, *others = under_way.values() or (None,)
    return snapshot.replace(swap=first, swaps_beside=tuple(others))


def _requests(snapshot: Snapshot, changed: Sequence[Request]) -> Snapshot:
    """Apply several changes of requests; the tables are copied once."""
    requests, ended = dict(snapshot.requests), []
    for request in changed:
        if request.state in OPEN:
            requests[request.id] = request
            continue
        requests.pop(request.id, None)
        ended.append(request)
    if not ended:
        return snapshot.replace(requests=requests)
    recent = _remembered(ended[::-1], snapshot.recent)
    figures = count_requests(snapshot.figures, ended, (*requests.values(), *recent))
    return snapshot.replace(requests=requests, recent=recent, figures=figures)


def _remembered(ended: Sequence[Request], recent: Sequence[Request]) -> tuple[Request, ...]:
    """Merge ended requests into the recent ones; of successful side requests, which are many, the last of each kind."""
    if not any(one.route in ASIDES for one in ended):
        return (*ended, *recent)[:RECENT_REQUESTS]
    kept, kinds = list[Request](), set[tuple[str, ...]]()
    for one in (*ended, *recent):
        if one.route in ASIDES and one.state is RequestState.DONE:
            kind = (one.client, one.key or "", one.profile, one.route)
            if kind in kinds:
                continue
            kinds.add(kind)
        kept.append(one)
    return tuple(kept[:RECENT_REQUESTS])


def replay(snapshot: Snapshot, events: Iterable[Event]) -> Snapshot:
    """Apply events in order; a run of request changes costs little more than one."""
    seq, at, changed = snapshot.seq, snapshot.at, list[Request]()
    for event in events:
        if isinstance(event.fact, RequestChanged) and event.seq == seq + 1:
            seq, at = event.seq, event.at
            changed.append(event.fact.request)
        else:
            snapshot = apply(_together(snapshot, seq, at, changed), event)
            seq, at, changed = snapshot.seq, snapshot.at, []
    return _together(snapshot, seq, at, changed)


def _together(snapshot: Snapshot, seq: int, at: float, changed: Sequence[Request]) -> Snapshot:
    if not changed:
        return snapshot
    return _requests(snapshot, changed).replace(seq=seq, at=at)
