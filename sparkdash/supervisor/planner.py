"""Planner: needs, memory and times for decisions and people, and the plans made of them, for one profile or a set."""

from collections.abc import Callable, Iterable, Mapping

from sparkdash.catalog import Catalog
from sparkdash.domain.cluster import Cables
from sparkdash.domain.memory import Need
from sparkdash.domain.metric import Memory
from sparkdash.domain.node import LOCAL, NodeState, NodeStatus
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import Task
from sparkdash.domain.swap import Plan, PlanNode
from sparkdash.errors import SparkdashError
from sparkdash.rules import secret_at
from sparkdash.supervisor.decide import refusals
from sparkdash.supervisor.decide.fit import BoxMemory, Choice
from sparkdash.supervisor.decide.moves import Hold, ProfileFacts
from sparkdash.supervisor.decide.scheduler import Scheduler
from sparkdash.supervisor.swap.transition import launch_family
from sparkdash.supervisor.tools import Tools
from sparkdash.units import duration, gib


class Planner:
    """Answers DecisionFacts for the scheduler. `profiles` are those that it knows, `expected_s` is learned."""

    def __init__(
        self,
        tools: Tools,
        profiles: Callable[[], Mapping[str, Profile]],
        expected_s: Callable[[Profile | None], float | None],
    ) -> None:
        self._tools = tools
        self._profiles = profiles
        self._expected_s = expected_s

    def boxes(self) -> dict[str, BoxMemory]:
        """Return the memory now of each node that engines may come to, LOCAL first."""
        nodes = self._tools.nodes
        others = {name: nodes.memory(name) for name in nodes.names if self._is_usable(name)}
        return {name: self._box(name, memory) for name, memory in ({LOCAL: nodes.memory(LOCAL)} | others).items()}

    def unusable(self) -> dict[str, str]:
        nodes = self._tools.nodes
        silent = [name for name in nodes.names if name != LOCAL and not self._is_usable(name)]
        return {name: unusable_because(nodes.states.get(name)) for name in silent}

    def differing(self) -> dict[str, str]:
        states = self._tools.nodes.states.values()
        return {
            state.name: f"{state.name} is back with {state.differs}. Mend it, or take it as it is: "
            f"`sparkdash nodes remove {state.name}`, and add it again."
            for state in states
            if state.differs
        }

    def cables(self) -> Cables:
        return self._tools.nodes.cables

    def _is_usable(self, node: str) -> bool:
        state = self._tools.nodes.states.get(node)
        reachable = state is not None and state.status is NodeStatus.REACHABLE
        return reachable and self._tools.nodes.memory(node) is not None

    def _box(self, node: str, memory: Memory | None) -> BoxMemory:
        reserve, beside = self._tools.reserve_bytes, self._tools.settings.side_by_side
        if memory is None:
            return BoxMemory(reserve=reserve, side_by_side=beside)
        debts = self._tools.registry.debts_on(node)
        late = self._tools.clock.monotonic() >= debts.at + self._tools.settings.reclaim_s
        missing = debts.missing(memory.available)
        coming = 0 if late or missing is None else missing
        holders = refusals.holders(self._tools.foreign()) if node == LOCAL else None
        available = memory.available + coming
        return BoxMemory(memory.total, available, reserve, missing != 0, holders, side_by_side=beside)

    def need(self, profile: str, count: int | None = None) -> Need:
        found = self._profile(profile, count)
        return self._tools.needs(found) if found else Need()

    def tasks(self, profile: str) -> frozenset[Task] | None:
        found = self._profile(profile)
        return self._tools.adapter(found).tasks(found, self._tools.needs.target(found)) if found else None

    def most_steps_s(self, profile: str) -> float | None:
        found = self._profile(profile)
        return self._tools.needs.most_steps_s(found) if found else None

    def reload_s(self, profile: str) -> float | None:
        return self._expected_s(self._profiles().get(profile))

    def short(self, profile: str) -> SparkdashError | None:
        """Return why no load may begin now. Memory on its way back is waited for before that is judged."""
        if self._tools.registry.debts_on(LOCAL).who:
            return None
        try:
            found = self._tools.guarded.short(profile)
        except SparkdashError:  # the box's memory cannot be read
            return None
        if found is not None:
            found.holders = refusals.holders(self._tools.foreign())
        return found

    def known(self, catalog: Catalog) -> dict[str, ProfileFacts]:
        return {name: self.profile_facts(profile) for name, profile in catalog.profiles.items()}

    def profile_facts(self, profile: Profile) -> ProfileFacts:
        policy, adapter = self._tools.settings.policy_of(profile.name), self._tools.adapter(profile)
        return ProfileFacts(
            profile.fingerprint,
            managed=adapter.managed,
            loads_alone=adapter.sizes_by_free_memory(profile),
            cannot_run=profile.cannot_run,
            nearest=profile.nearest,
            secret_at=secret_at(profile),
            counts=(profile.nodes, *profile.fewer),
            node=profile.node,
            topologies=profile.topologies,
            fallbacks=profile.fallbacks,
            pinned=policy.pinned,
            idle_ttl_s=policy.idle_ttl_s,
            limit=policy.max_concurrency,
            autocomplete=policy.autocomplete,
        )

    async def preview(self, profile: Profile, scheduler: Scheduler) -> tuple[Plan, SparkdashError | None]:
        """Describe what using the profile would do now, and why that would be refused. Raises AdmissionError."""
        if error := refusals.unstartable(profile.name, self.profile_facts(profile)):
            raise error
        await self._tools.needs.read([profile])  # the weights may have arrived since
        records = scheduler.records
        choice = scheduler.choice(profile.name, self._tools.clock.monotonic())
        there = dict.fromkeys((*records.residents, *filter(records.coming, filter(None, records.swaps))))
        if records.as_written(profile.name):  # an engine of an older version is restarted
            return self._plan_running(profile, choice, there), None
        hold = scheduler.occupancy.hold(profile.name, choice)
        waits_for = scheduler.decisions.waits_for(profile.name, choice)
        refusal = scheduler.occupancy.refusal(profile.name, choice)
        kept = scheduler.hold(profile.name, self._tools.clock.monotonic())
        plan = self._plan_start(profile.on(len(choice.nodes)), choice, there, hold, waits_for)
        return plan.replace(requests_wait=self._held_off(kept) if kept else None), refusal

    def _held_off(self, hold: Hold) -> str:
        left_s = hold.until - self._tools.clock.monotonic()
        verb = "is" if len(hold.by) == 1 else "are"
        return (
            f"{' and '.join(hold.by)} {verb} in use; a request waits up to {duration(left_s)} (`min_dwell_s`, "
            "`min_dwell_share` in config.toml)"
        )

    def _plan_running(self, profile: Profile, choice: Choice, residents: Iterable[str]) -> Plan:
        nodes = self._tools.registry.engines[profile.name].nodes
        plan = self._plan(profile, choice, residents, evict=())
        return plan.replace(nodes=nodes, fits=True, verdict="It runs already.", expected_s=0.0)

    def _plan_start(
        self,
        profile: Profile,
        choice: Choice,
        residents: Iterable[str],
        hold: SparkdashError | None,
        waits_for: tuple[str, ...],
    ) -> Plan:
        plan = self._plan(profile, choice, residents, evict=choice.names)
        box = self.boxes().get(choice.tightest, BoxMemory())
        engines = self._tools.registry.engines  # of an engine without an entry the nodes are not known
        near = tuple(
            name for name in plan.beside if name not in engines or not {*choice.nodes}.isdisjoint(engines[name].nodes)
        )
        return plan.replace(
            reasons={one.profile: one.reason for one in choice.leaving},
            fits=choice.fits,
            verdict=verdict(plan.need, choice, box, near, waits_for, held=bool(hold)),
            held=held(hold, choice) if hold else None,
            expected_s=self._expected_s(profile),
        )

    def _plan(self, profile: Profile, choice: Choice, residents: Iterable[str], *, evict: tuple[str, ...]) -> Plan:
        """Gather what both plans tell: nodes, memory, and who stays. Residents include engines that are coming up."""
        boxes, need = self.boxes(), self._tools.needs(profile)
        box, store = boxes.get(choice.tightest, BoxMemory()), self._tools.store
        return Plan(
            profile=profile.name,
            nodes=choice.nodes,
            on_nodes=tuple(
                PlanNode(
                    node=room.node,
                    now_bytes=boxes.get(room.node, BoxMemory()).available,
                    available_bytes=room.available,
                    fits=room.fits,
                )
                for room in choice.rooms
            ),
            evict=evict,
            beside=tuple(name for name in residents if name not in (profile.name, *evict)),
            need=need,
            needs_bytes=need.room_bytes,
            now_bytes=box.available,
            reserve_bytes=box.reserve,
            available_bytes=choice.available,
            starts=store.learned.starts(launch_family(profile)) if store else (),
        )

    def _profile(self, name: str, count: int | None = None) -> Profile | None:
        """Return the profile as its engine was started, else as its file says now; both on `count` nodes, if given."""
        started, written = self._tools.registry.started.get(name), self._profiles().get(name)
        if written is None or (started and count in (None, started.nodes)):
            return started
        return written if count is None else written.on(count)


def unusable_because(state: NodeState | None) -> str:
    if state is None or state.status is NodeStatus.REACHABLE:
        return "Its memory is not known yet."
    return state.reason or f"It is {state.status.value}."


def held(hold: SparkdashError, choice: Choice) -> str:
    """Word the plan's sentence that the guard lets no load begin, and what would change that."""
    if not choice.leaving:
        return hold.text()
    return f"{hold.message} It is looked at again {_once_left(choice)}."


def verdict(
    need: Need,
    choice: Choice,
    box: BoxMemory,
    beside: tuple[str, ...],
    waits_for: tuple[str, ...] = (),
    *,
    held: bool = False,
) -> str:
    """Say in one to three sentences whether the profile fits, by which figures, and which loads it waits for."""
    words = _fits(need, choice, box, beside, held=held)
    have = "has" if len(waits_for) == 1 else "have"
    waits = f" It begins once {' and '.join(waits_for)} {have} loaded."
    return words + waits if waits_for and choice.fits is not False else words


def _once_left(choice: Choice) -> str:
    have = "has" if len(choice.names) == 1 else "have"
    return f"once {' and '.join(choice.names)} {have} left"


def _when(choice: Choice, beside: tuple[str, ...]) -> str:
    room = _once_left(choice) if choice.leaving else "now"
    if choice.nodes not in ((), (LOCAL,)):
        room += f" on {' and '.join('this box' if node == LOCAL else node for node in choice.nodes)}"
    return f"{room}, beside {' and '.join(beside)}" if beside else room


def _fits(need: Need, choice: Choice, box: BoxMemory, beside: tuple[str, ...], *, held: bool) -> str:
    if choice.fits is False:
        return _fits_not(choice, box)
    if held and not choice.leaving:
        return "It is not started while the memory guard holds loads back."
    room = _when(choice, beside)
    if choice.needs is None:
        if choice.fits:
            return "It runs elsewhere and takes nothing here."
        return f"Whether it fits is unknown, because its need is unknown. It runs alone, and is tried {room}."
    if choice.fits is None:
        why = f"its need is {need.basis.value}, or the memory of an engine that leaves was never measured"
        return f"Whether it fits is uncertain: {why}. It is tried {room}."
    tight = choice.available is not None and choice.needs > choice.available
    return f"It fits {room}" + (", within the reserve, as it did here before." if tight else ".")


def _fits_not(choice: Choice, box: BoxMemory) -> str:
    if not choice.nodes and choice.available is None:
        return "It cannot start now: too few of the nodes that it needs can be used."
    where = "" if choice.tightest == LOCAL else f" on {choice.tightest}"
    beyond = f"beyond the reserve of {gib(box.reserve)}{where}"
    return f"It does not fit, whichever engines leave: {gib(choice.available)} can be freed {beyond}."
