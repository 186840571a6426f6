"""Orders: what a person wants done, asked about where it stops something, and carried to the daemon.

Owns: which orders are asked about; the words are in questions.py. Must not know widgets; it speaks through Clerk.
Rule: only what stops something is confirmed, and the question names what stops.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Protocol

from sparkdash.domain.engine import Engine
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import SparkdashError
from sparkdash.tui.ink import Told
from sparkdash.tui.lines import doctor_findings, memory_holders, questions
from sparkdash.tui.link import DaemonLink
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.measuring import under_way


class Clerk(Protocol):
    """The app, as far as orders need it."""

    link: DaemonLink
    view: View

    async def ask(self, title: str, told: Told, *, yes: str | None = None, again: str | None = None) -> bool:
        """Show a dialog; True when the person said yes."""
        ...

    def say(self, text: str, *, bad: bool = False) -> None:
        """A short answer on the notice row."""
        ...


class Orders:
    """One for the app. Every method may be run as a task of its own."""

    def __init__(self, clerk: Clerk) -> None:
        self._clerk = clerk

    async def switch(self, name: str) -> None:
        """Make a profile run."""
        await self._told(self._switch(name))

    async def flip(self) -> None:
        """Use whichever of A and B does not run."""
        await self._told(self._flip())

    async def mark(self, name: str, side: str) -> None:
        """Make a profile A or B; a profile is never both."""
        await self._told(self._mark(name, side))

    async def stop(self, name: str | None = None) -> None:
        """Stop one engine, or the one that runs."""
        await self._told(self._stop(name))

    async def cancel(self) -> None:
        """Cancel every swap under way."""
        await self._told(self._cancel())

    async def cancel_request(self, request_id: str) -> None:
        """End one request."""
        await self._told(self._cancel_request(request_id))

    async def release(self, name: str) -> None:
        """Let a parked profile be tried again."""
        snapshot = self._snapshot()
        if snapshot is not None and name not in snapshot.parked:
            self._clerk.say(f"{name} is not parked.")
            return
        await self._told(self._clerk.link.release(profile=name), f"{name} may be tried again")

    async def reload(self) -> None:
        """Read the profiles again."""
        await self._told(self._clerk.link.reload(), "the profiles are read again")

    async def pull(self, name: str) -> None:
        """Fetch a profile's image, telling how far it is, and say how its weights come: they are the command line's."""
        await self._told(self._pull(name))

    async def traffic(self) -> None:
        """The demo's traffic on or off."""
        now = self._clerk.view.snapshot.traffic if self._clerk.view.snapshot else None
        if now is None:
            self._clerk.say("Only the demo has traffic of its own.")
            return
        await self._told(self._clerk.link.traffic(on=not now), f"the demo's traffic is {'off' if now else 'on'}")

    async def end_measuring(self) -> None:
        """Have the run that is measured stop; it may go on later."""
        now = under_way(self._clerk.view)
        if now is None:
            self._clerk.say("Nothing is measured that could be ended.")
            return
        await self._told(self._clerk.link.end_measuring(), f"{now.run} stops; r on the A/B page goes on with it")

    async def resume(self, run: str | None = None) -> None:
        """Have a run that still lacks something go on, or the newest such one."""
        await self._told(self._resume(run))

    async def doctor(self) -> None:
        """What of the daemon's box would keep engines from running."""
        await self._told(self._doctor())

    async def memory(self) -> None:
        """Who holds the memory of the daemon's box."""
        await self._told(self._memory())

    async def why(self, name: str) -> None:
        """Why a profile cannot run; of one that can, what it needs and who would leave for it."""
        await self._told(self._why(name))

    async def _told(self, order: Awaitable[object], done: str = "") -> None:
        try:
            await order
        except SparkdashError as error:
            await self._clerk.ask("that did not work", partial(questions.told, error))
        else:
            if done:
                self._clerk.say(done)

    def _snapshot(self) -> Snapshot | None:
        if self._clerk.view.snapshot is None:
            self._clerk.say("There is no daemon to tell it to yet.", bad=True)
        return self._clerk.view.snapshot

    async def _why(self, name: str) -> None:
        snapshot = self._snapshot()
        profile = snapshot.profile(name) if snapshot else None
        if profile is None:
            return
        if profile.engine is EngineKind.REMOTE:
            self._clerk.say(f"{name} is a service elsewhere: it needs nothing here.")
        elif profile.cannot_run:
            await self._clerk.ask(f"{name} cannot run as published", partial(questions.why_not, profile))
        else:
            plan = await self._clerk.link.plan(name=name)
            await self._clerk.ask(f"what {name} needs", partial(questions.why, plan))

    async def _switch(self, name: str) -> None:
        snapshot = self._snapshot()
        profile = snapshot.profile(name) if snapshot else None
        if snapshot is None:
            return
        if profile and profile.cannot_run:
            await self._why(name)
            return
        plan = await self._clerk.link.plan(name=name)
        if plan.expected_s == 0 and not plan.evict:
            self._clerk.say(f"{name} runs already.")
        elif await self._agreed(plan, snapshot, f"switch to {name}?", None):
            await self._clerk.link.use(profile=name)
            self._clerk.say(f"{name} is coming up.")

    async def _flip(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        a, b = snapshot.toggle_a, snapshot.toggle_b
        if a is None or b is None:
            self._clerk.say("Mark two profiles first: page 2, keys a and b.")
            return
        target = b if snapshot.active and snapshot.active.profile == a else a
        plan = await self._clerk.link.plan(name=target)
        if plan.expected_s == 0 and not plan.evict:
            self._clerk.say(f"{a} and {b} both run: there is nothing to flip.")
        elif await self._agreed(plan, snapshot, f"flip to {target}?", "t"):
            await self._clerk.link.toggle(flip=True)
            self._clerk.say(f"{target} is coming up.")

    async def _agreed(self, plan: Plan, snapshot: Snapshot, title: str, again: str | None) -> bool:
        """Nothing that is stopped needs no question; what does not fit is told and not offered."""
        if plan.fits is False:
            await self._clerk.ask(title, partial(questions.question, plan, snapshot))
            return False
        if not plan.evict:
            return True
        return await self._clerk.ask(title, partial(questions.question, plan, snapshot), yes="switch", again=again)

    async def _mark(self, name: str, side: str) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        a, b = snapshot.toggle_a, snapshot.toggle_b
        other = b if side == "A" else a
        if other == name:
            self._clerk.say(f"{name} is {'B' if side == 'A' else 'A'} already; mark another one there first.")
            return
        await self._clerk.link.toggle(a=name if side == "A" else None, b=name if side == "B" else None)
        self._clerk.say(f"{name} is {side}; t flips." if other else f"{name} is {side}; mark the other one.")

    async def _stop(self, name: str | None) -> None:
        snapshot = self._snapshot()
        engine = snapshot.engines.get(name) if snapshot and name else self._clerk.view.engine
        if snapshot is None or engine is None:
            self._clerk.say("Nothing runs.")
            return
        if engine.is_foreign:
            await self._stop_using(engine)
            return
        told = partial(questions.stop, engine.profile, snapshot)
        if await self._clerk.ask(f"stop {engine.profile}?", told, yes="stop", again="S"):
            await self._clerk.link.stop(profile=engine.profile)
            self._clerk.say(f"{engine.profile} is stopping.")

    async def _stop_using(self, engine: Engine) -> None:
        told = partial(questions.stop_using, engine.profile, engine.url)
        if await self._clerk.ask(f"stop using {engine.profile}?", told, yes="stop using it", again="S"):
            await self._clerk.link.stop(profile=engine.profile)
            self._clerk.say(f"{engine.profile} is no longer used; its server goes on running.")

    async def _cancel(self) -> None:
        swaps = self._clerk.view.swaps
        if not swaps:
            self._clerk.say("No swap is under way.")
            return
        which = "this swap" if len(swaps) == 1 else f"{len(swaps)} swaps"
        if await self._clerk.ask(f"give up {which}?", partial(questions.give_up, swaps), yes="give up", again="x"):
            await self._clerk.link.cancel()
            self._clerk.say("The swap is given up." if len(swaps) == 1 else f"{len(swaps)} swaps are given up.")

    async def _cancel_request(self, request_id: str) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        request = snapshot.requests.get(request_id)
        if request is None:
            self._clerk.say("That request is over.")
            return
        if await self._clerk.ask("end this request?", partial(questions.end, request), yes="end it", again="c"):
            await self._clerk.link.cancel_request(request_id=request_id)
            self._clerk.say("The request is ended; its client is told.")

    async def _resume(self, run: str | None) -> None:
        run = run or next((one.id for one in await self._clerk.link.runs() if one.ended_at is None), None)
        if run is None:
            self._clerk.say("There is no run that lacks anything.")
            return
        await self._clerk.link.resume_run(run=run)
        self._clerk.say(f"{run} goes on.")

    async def _doctor(self) -> None:
        self._clerk.say("The doctor looks at the box…")
        diagnosis = await self._clerk.link.doctor()
        await self._clerk.ask("doctor", partial(doctor_findings.lines, diagnosis))

    async def _memory(self) -> None:
        found = await self._clerk.link.memory()
        await self._clerk.ask("memory by owner", partial(memory_holders.lines, found))

    async def _pull(self, name: str) -> None:
        snapshot = self._clerk.view.snapshot
        profile = snapshot.profile(name) if snapshot else None
        if profile and profile.simulated:
            self._clerk.say(f"{name} is simulated: there is nothing to fetch.")
            return
        async with aclosing(self._clerk.link.pull(profile=name)) as steps:
            async for step in steps:
                share = f" {step.fraction * 100:.0f} %" if step.fraction is not None else ""
                self._clerk.say(f"{step.image}: {'there' if step.done else step.detail + share}")
        if profile and any(ref.hf for ref in profile.weights):
            self._clerk.say(f"Image there. Weights: sparkdash pull {name}")


Order = Callable[[Orders], Awaitable[None]]
"""A bound or partial order, as the palette keeps them."""
