"""Orders: everything that a person can have the daemon do, with a question first where that stops something.

Owns: which orders are confirmed; the words are in `lines.questions`. Must not know widgets: the app is an OrderHost.
Rule: only what stops something is confirmed, and the question names what stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from sparkdash.domain.engine import Engine
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import SparkdashError
from sparkdash.tui.ink import LinesForWidth
from sparkdash.tui.lines import doctor_findings, memory_holders, questions
from sparkdash.tui.mirror import View

if TYPE_CHECKING:
    from sparkdash.tui.link import DaemonLink

Side = Literal["A", "B"]


class OrderHost(Protocol):
    """The app, as far as orders need it."""

    view: View

    @property
    def link(self) -> DaemonLink:
        """Link to the daemon."""
        ...

    async def ask(self, title: str, told: LinesForWidth, *, yes: str | None = None, again: str | None = None) -> bool:
        """Show a dialog; return whether the user agreed."""
        ...

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a short answer on the notice row."""
        ...

    def run_order(self, order: Coroutine[None, None, None]) -> None:
        """Run an order in a task of its own."""
        ...


class UserOrders:
    """Orders of the app. Each method returns at once; the order runs in its own task."""

    def __init__(self, host: OrderHost) -> None:
        self._host = host

    def switch(self, profile: str) -> None:
        """Make a profile run, asking first where that stops something."""
        self._run(self._switch(profile))

    def flip(self) -> None:
        """Use whichever of A and B does not run."""
        self._run(self._flip())

    def mark(self, profile: str, side: Side) -> None:
        """Make a profile A or B; a profile is never both."""
        self._run(self._mark(profile, side))

    def stop(self, profile: str | None = None) -> None:
        """Stop one engine, or the one that runs."""
        self._run(self._stop(profile))

    def cancel(self) -> None:
        """Cancel every swap under way."""
        self._run(self._cancel())

    def cancel_request(self, request_id: str) -> None:
        """End one request."""
        self._run(self._cancel_request(request_id))

    def release(self, profile: str) -> None:
        """Let a parked profile be tried again."""
        snapshot = self._snapshot()
        if snapshot is not None and profile not in snapshot.parked:
            self._host.say(f"{profile} is not parked.")
            return
        self._run(self._host.link.release(profile=profile), f"{profile} may be tried again")

    def extend_load(self) -> None:
        """Let every load that stands still go on for its whole limit."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        stalled = [swap.target for swap in snapshot.swaps_under_way if swap.target and swap.still_since is not None]
        if not stalled:
            self._host.say("No load stands still.")
        for name in stalled:
            self._run(self._host.link.extend_load(profile=name), f"{name} may go on standing still; x cancels it.")

    def reload(self) -> None:
        """Read the profiles again."""
        self._run(self._host.link.reload(), "The profile files were read again.")

    def traffic(self) -> None:
        """Switch the demo's traffic on or off."""
        now = self._host.view.snapshot.traffic if self._host.view.snapshot else None
        if now is None:
            self._host.say("Only the demo has traffic of its own.")
            return
        self._run(self._host.link.traffic(on=not now), f"The demo's traffic is {'off' if now else 'on'}.")

    def end_measuring(self) -> None:
        """Stop the run that is measured; it can be resumed later."""
        now = self._host.view.measuring
        if now is None:
            self._host.say("No measurement is running.")
            return
        self._run(self._host.link.end_measuring(), f"{now.run} stops; r on the A/B page resumes it")

    def resume_run(self, run: str | None = None) -> None:
        """Resume a run, or the newest run that lacks something."""
        self._run(self._resume_run(run))

    def doctor(self) -> None:
        """Show what of the daemon's box would keep engines from running."""
        self._run(self._doctor())

    def memory(self) -> None:
        """Show who holds the memory of the daemon's box."""
        self._run(self._memory())

    def why(self, profile: str) -> None:
        """Show why a profile cannot run; of one that can, what it needs and which engines would leave for it."""
        self._run(self._why(profile))

    def _run(self, order: Awaitable[object], done: str = "") -> None:
        self._host.run_order(self._carry_out(order, done))

    async def _carry_out(self, order: Awaitable[object], done: str) -> None:
        try:
            await order
        except SparkdashError as error:
            await self._host.ask("that did not work", partial(questions.error_lines, error))
        else:
            if done:
                self._host.say(done)

    def _snapshot(self) -> Snapshot | None:
        if self._host.view.snapshot is None:
            self._host.say("No daemon is connected yet.", bad=True)
        return self._host.view.snapshot

    async def _why(self, name: str) -> None:
        snapshot = self._snapshot()
        profile = snapshot.profile(name) if snapshot else None
        if profile is None or snapshot is None:
            return
        if profile.engine is EngineKind.REMOTE:
            self._host.say(f"{name} is a remote service: it needs nothing on this box.")
        elif profile.cannot_run:
            await self._host.ask(f"{name} cannot run as published", partial(questions.cannot_run_lines, profile))
        else:
            plan = await self._host.link.plan(name=name)
            await self._host.ask(f"what {name} needs", partial(questions.need_lines, plan, snapshot))

    async def _switch(self, name: str) -> None:
        snapshot = self._snapshot()
        profile = snapshot.profile(name) if snapshot else None
        if snapshot is None:
            return
        if profile and profile.cannot_run:
            await self._why(name)
            return
        plan = await self._host.link.plan(name=name)
        if plan.expected_s == 0 and not plan.evict:
            self._host.say(f"{name} is running already.")
        elif await self._agreed(plan, snapshot, f"switch to {name}?", None):
            await self._host.link.use(profile=name)
            self._host.say(f"{name} is starting.")

    async def _flip(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        a, b = snapshot.toggle_a, snapshot.toggle_b
        if a is None or b is None:
            self._host.say("Mark two profiles first: page 2, keys a and b.")
            return
        target = b if snapshot.active and snapshot.active.profile == a else a
        plan = await self._host.link.plan(name=target)
        if plan.expected_s == 0 and not plan.evict:
            self._host.say(f"{a} and {b} both run already.")
        elif await self._agreed(plan, snapshot, f"flip to {target}?", "t"):
            await self._host.link.toggle(flip=True)
            self._host.say(f"{target} is starting.")

    async def _agreed(self, plan: Plan, snapshot: Snapshot, title: str, again: str | None) -> bool:
        """Ask if the plan stops something; show a plan that does not fit without offering it."""
        if plan.fits is False:
            await self._host.ask(title, partial(questions.switch_question, plan, snapshot))
            return False
        if not plan.evict:
            return True
        return await self._host.ask(
            title, partial(questions.switch_question, plan, snapshot), yes="switch", again=again
        )

    async def _mark(self, name: str, side: Side) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        a, b = snapshot.toggle_a, snapshot.toggle_b
        other = b if side == "A" else a
        if other == name:
            self._host.say(f"{name} is {'B' if side == 'A' else 'A'} already; mark another profile there first.")
            return
        await self._host.link.toggle(a=name if side == "A" else None, b=name if side == "B" else None)
        self._host.say(f"{name} is {side}; t flips." if other else f"{name} is {side}; mark the other one.")

    async def _stop(self, name: str | None) -> None:
        snapshot = self._snapshot()
        engine = snapshot.engines.get(name) if snapshot and name else self._host.view.engine
        if snapshot is None or engine is None:
            self._host.say("No engine is running.")
            return
        if engine.is_foreign:
            await self._stop_using(engine)
            return
        told = partial(questions.stop_question, engine.profile, snapshot)
        if await self._host.ask(f"stop {engine.profile}?", told, yes="stop", again="S"):
            await self._host.link.stop(profile=engine.profile)
            self._host.say(f"{engine.profile} is stopping.")

    async def _stop_using(self, engine: Engine) -> None:
        told = partial(questions.stop_using_question, engine.profile, engine.url)
        if await self._host.ask(f"stop using {engine.profile}?", told, yes="stop using it", again="S"):
            await self._host.link.stop(profile=engine.profile)
            self._host.say(f"{engine.profile} is no longer used; its server keeps running.")

    async def _cancel(self) -> None:
        swaps = self._host.view.swaps
        if not swaps:
            self._host.say("No swap is under way.")
            return
        which = "this swap" if len(swaps) == 1 else f"{len(swaps)} swaps"
        if await self._host.ask(f"cancel {which}?", partial(questions.cancel_question, swaps), yes="cancel", again="x"):
            await self._host.link.cancel()
            self._host.say("The swap is cancelled." if len(swaps) == 1 else f"{len(swaps)} swaps are cancelled.")

    async def _cancel_request(self, request_id: str) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        request = snapshot.requests.get(request_id)
        if request is None:
            self._host.say("That request has ended already.")
            return
        if await self._host.ask(
            "end this request?", partial(questions.end_request_question, request), yes="end it", again="c"
        ):
            await self._host.link.cancel_request(request_id=request_id)
            self._host.say("The request is ended; its client gets the reason.")

    async def _resume_run(self, run: str | None) -> None:
        run = run or next((one.id for one in await self._host.link.runs() if one.ended_at is None), None)
        if run is None:
            self._host.say("No run is unfinished.")
            return
        await self._host.link.resume_run(run=run)
        self._host.say(f"{run} resumes.")

    async def _doctor(self) -> None:
        self._host.say("The doctor examines the box…")
        diagnosis = await self._host.link.doctor()
        await self._host.ask("doctor", partial(doctor_findings.finding_lines, diagnosis))

    async def _memory(self) -> None:
        found = await self._host.link.memory()
        await self._host.ask("memory by owner", partial(memory_holders.holder_lines, found))
