"""Orders: everything that a person can have the daemon do, with a question first where that stops something.

Rule: only what stops something is confirmed, and the question names what stops.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import aclosing
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Protocol

from sparkdash import paths
from sparkdash.domain.engine import Engine
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.paths import replace_file
from sparkdash.tui.choices import HeroChoice
from sparkdash.tui.first_run import BoxLook, IdleBox
from sparkdash.tui.layout import Arrangement
from sparkdash.tui.lines import dialog_texts
from sparkdash.tui.local_commands import LocalCommands
from sparkdash.tui.mirror import View
from sparkdash.tui.text import LinesForWidth

if TYPE_CHECKING:
    from sparkdash.tui.link import DaemonLink


Side = Literal["A", "B"]


SUFFIXES = (".yaml", ".yml")


class AppServices(Protocol):
    """What orders, panels and pages use of the app."""

    view: View
    """Latest view; the same object until the next paint."""
    orders: UserOrders
    profile_orders: ProfileOrders

    @property
    def link(self) -> DaemonLink: ...

    @property
    def box(self) -> BoxLook | None: ...

    async def ask(
        self, title: str, told: LinesForWidth, *, yes: str | None = None, again: str | None = None
    ) -> bool: ...

    def say(self, text: str, *, bad: bool = False) -> None: ...

    def run_order(self, order: Coroutine[None, None, None]) -> None: ...

    def edit_file(self, file: Path, line: int) -> None: ...

    def set_idle(self, idle: IdleBox) -> None: ...

    def choose_hero(self, hero: HeroChoice) -> None: ...

    def arrange(self, shown: Arrangement) -> None: ...

    def open_history(self, figure: str, profile: str) -> None: ...


class _Orders:
    """Runs each order in a task of its own, and shows its error."""

    def __init__(self, host: AppServices) -> None:
        self._host = host

    def _run(self, order: Awaitable[object], done: str = "") -> None:
        self._host.run_order(self._carry_out(order, done))

    async def _carry_out(self, order: Awaitable[object], done: str) -> None:
        try:
            await order
        except SparkdashError as error:
            await self._host.ask("that did not work", partial(dialog_texts.error_lines, error))
        else:
            if done:
                self._host.say(done)


class UserOrders(_Orders):
    """Orders of the app. Each method returns at once."""

    def switch(self, profile: str) -> None:
        self._run(self._switch(profile))

    def flip(self) -> None:
        self._run(self._flip())

    def mark(self, profile: str, side: Side) -> None:
        """Make a profile A or B; a profile is never both."""
        self._run(self._mark(profile, side))

    def stop(self, profile: str | None = None) -> None:
        self._run(self._stop(profile))

    def cancel(self) -> None:
        self._run(self._cancel())

    def cancel_request(self, request_id: str) -> None:
        self._run(self._cancel_request(request_id))

    def release(self, profile: str) -> None:
        snapshot = self._snapshot()
        if snapshot is not None and profile not in snapshot.parked:
            self._host.say(f"{profile} is not parked.")
            return
        self._run(self._host.link.release(profile=profile), f"{profile} may be tried again")

    def extend_load(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        stalled = [swap.target for swap in snapshot.swaps_under_way if swap.target and swap.still_since is not None]
        if not stalled:
            self._host.say("No load stands still.")
        for name in stalled:
            self._run(self._host.link.extend_load(profile=name), f"{name} may go on standing still; x cancels it.")

    def reload(self) -> None:
        self._run(self._host.link.reload(), "The profile files were read again.")

    def traffic(self) -> None:
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
        self._run(self._doctor())

    def memory(self) -> None:
        self._run(self._memory())

    def why(self, profile: str) -> None:
        """Show why a profile cannot run; of one that can, what it needs and which engines would leave for it."""
        self._run(self._why(profile))

    def _snapshot(self) -> Snapshot | None:
        if self._host.view.snapshot is None:
            self._host.say("No daemon is connected yet.", bad=True)
        return self._host.view.snapshot

    async def _why(self, name: str) -> None:
        snapshot = self._snapshot()
        profile = snapshot.profile(name) if snapshot else None
        if profile is None or snapshot is None:
            return
        if profile.engine.is_remote:
            self._host.say(f"{name} is a remote service: it needs nothing on this box.")
        elif profile.cannot_run:
            await self._host.ask(f"{name} cannot run as published", partial(dialog_texts.cannot_run_lines, profile))
        else:
            plan = await self._host.link.plan(name=name)
            await self._host.ask(f"what {name} needs", partial(dialog_texts.need_lines, plan, snapshot))

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
            await self._host.ask(title, partial(dialog_texts.switch_question, plan, snapshot))
            return False
        if not plan.evict:
            return True
        return await self._host.ask(
            title, partial(dialog_texts.switch_question, plan, snapshot), yes="switch", again=again
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
        told = partial(dialog_texts.stop_question, engine.profile, snapshot)
        if await self._host.ask(f"stop {engine.profile}?", told, yes="stop", again="S"):
            await self._host.link.stop(profile=engine.profile)
            self._host.say(f"{engine.profile} is stopping.")

    async def _stop_using(self, engine: Engine) -> None:
        told = partial(dialog_texts.stop_using_question, engine.profile, engine.url)
        if await self._host.ask(f"stop using {engine.profile}?", told, yes="stop using it", again="S"):
            await self._host.link.stop(profile=engine.profile)
            self._host.say(f"{engine.profile} is no longer used; its server keeps running.")

    async def _cancel(self) -> None:
        swaps = self._host.view.swaps
        if not swaps:
            self._host.say("No swap is under way.")
            return
        which = "this swap" if len(swaps) == 1 else f"{len(swaps)} swaps"
        if await self._host.ask(
            f"cancel {which}?", partial(dialog_texts.cancel_question, swaps), yes="cancel", again="x"
        ):
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
            "end this request?", partial(dialog_texts.end_request_question, request), yes="end it", again="c"
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
        await self._host.ask("doctor", partial(dialog_texts.diagnosis_lines, diagnosis))

    async def _memory(self) -> None:
        found = await self._host.link.memory()
        await self._host.ask("memory by owner", partial(dialog_texts.holder_lines, found))


class ProfileOrders(_Orders):
    """Orders of the profiles page. Each method returns at once.

    Rule: a file of the owner is replaced only by a text that was checked; the old one stays otherwise.
    """

    @cached_property
    def commands(self) -> LocalCommands:
        return LocalCommands(self._host.link.address)

    def pin(self, profile: str) -> None:
        """Keep a profile's engine until a person stops it, or end that."""
        self._run(self._pin(profile))

    def preload(self, profile: str) -> None:
        """Load a profile when the daemon starts, or end that."""
        self._run(self._preload(profile))

    def edit(self, profile: str) -> None:
        self._run(self._edit(profile))

    def edit_settings(self) -> None:
        """Open config.toml in the owner's editor; a text that is not valid is not kept."""
        self._run(self._edit_settings())

    def dry_run(self, profile: str) -> None:
        self._run(self._dry_run(profile))

    def pull(self, profile: str) -> None:
        self._run(self._pull(profile))

    async def _pin(self, name: str) -> None:
        known = await self._host.link.settings()
        family = name.partition("/")[0]
        if name in known.pinned:
            value, said = None, f"{name} is not pinned any more: other models may make it leave."
        elif family in known.pinned:
            value, said = "false", f"{name} is not pinned any more; the rest of {family} stays pinned."
        else:
            value, said = "true", f"{name} is pinned: it stays until a person stops it."
        if value is None and family != name and family in known.pinned:
            value = "false"
        await self._host.link.change_setting(key=["policy", name, "pinned"], value=value)
        self._host.say(said)

    async def _preload(self, name: str) -> None:
        now = (await self._host.link.settings()).preload
        listed = [one for one in now if one != name] if name in now else [*now, name]
        value = json.dumps(listed, ensure_ascii=False) if listed else None
        await self._host.link.change_setting(key=["preload"], value=value)
        order = f" as number {len(listed)}" if len(listed) > 1 else ""
        self._host.say(
            f"{name} is loaded{order} when the daemon starts." if name in listed else f"{name} is preloaded no more."
        )

    async def _dry_run(self, name: str) -> None:
        self._must_be_local("The command of a profile is made from the files of the daemon's box.")
        told = await self.commands.dry_run(name)
        await self._host.ask(f"what starts {name}", partial(dialog_texts.command_lines, told))

    async def _edit_settings(self) -> None:
        self._must_be_local("config.toml lies on the daemon's box.")
        from sparkdash.settings import parse_settings  # the dashboard's start is short without them

        file = Path((await self._host.link.settings()).file)
        with TemporaryDirectory(prefix="sparkdash-edit-") as folder:
            draft = Path(folder) / file.name
            old = file.read_bytes() if os.path.exists(file) else b""  # noqa: ASYNC240, PTH110 - a small file
            draft.write_bytes(old)
            while True:
                self._host.edit_file(draft, 1)
                if draft.read_bytes() == old:
                    self._host.say("config.toml: nothing was changed.")
                    return
                try:
                    parse_settings(draft.read_text("utf-8", "replace"), file)
                except SparkdashError as error:
                    told = partial(dialog_texts.error_lines, error)
                    if not await self._host.ask("the edit is not valid; the old file stays", told, yes="edit again"):
                        return
                else:
                    break
            self._keep(draft, file)
        self._host.say("config.toml is saved; the daemon reads it within seconds and says what needs a restart.")

    async def _edit(self, name: str) -> None:
        self._must_be_local("The file lies on the daemon's box.")
        profile = await self._host.link.profile(name=name)
        place, _, line = profile.source.rpartition(":")
        file = Path(place)
        if not os.path.isfile(file):  # noqa: ASYNC240, PTH113 - a small file of this box
            raise AdmissionError(f"{name} comes from no file of this box.", code="no_file")
        target = await self._target(name, file)
        if target is not None:
            await self._edited(name, file, target, int(line) if line.isdigit() else 1)

    async def _target(self, name: str, file: Path) -> Path | None:
        """Return the file that is written: the owner's own; of a shipped profile a copy, if that is wanted."""
        if not file.is_relative_to(paths.shipped_profiles()):
            return file
        own = paths.config_dir() / "profiles" / file.name
        if own.exists():
            raise AdmissionError(
                f"{name} ships with sparkdash, and {own} exists already.", code="file_exists", hint="Edit that file."
            )
        told = partial(dialog_texts.copy_question, name, own)
        return own if await self._host.ask(f"edit a copy of {name}?", told, yes="copy and edit", again="E") else None

    async def _edited(self, name: str, file: Path, target: Path, line: int) -> None:
        with TemporaryDirectory(prefix="sparkdash-edit-") as folder:
            draft = _draft(file, Path(folder))
            before = draft.read_bytes()
            while True:
                self._host.edit_file(draft, line)
                if draft.read_bytes() == before:
                    self._host.say(f"{name}: nothing was changed.")
                    return
                self._host.say(f"{name}: the edit is checked…")
                found = await self.commands.check(draft)
                told = partial(dialog_texts.finding_lines, found, str(draft), file.name)
                if not dialog_texts.errors_of(found):
                    break
                if not await self._host.ask("the edit is not valid; the old file stays", told, yes="edit again"):
                    self._host.say(f"{name}: the edit was dropped, the old file is as it was.")
                    return
            self._keep(draft, target)
        await self._host.link.reload()
        self._host.say(f"{name}: saved in {target}. A running engine keeps its old version until it is loaded again.")
        if dialog_texts.warnings_of(found):
            await self._host.ask("saved, with warnings", told)

    def _keep(self, draft: Path, target: Path) -> None:
        target = target.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        try:
            replace_file(target, draft.read_bytes())
            target.chmod(mode)
        except OSError as error:
            raise AdmissionError(f"{target} cannot be written: {error.strerror}.", code="unwritable") from error

    async def _pull(self, name: str) -> None:
        snapshot = self._host.view.snapshot
        profile = snapshot.profile(name) if snapshot else None
        if profile and profile.simulated:
            self._host.say(f"{name} is simulated: there is nothing to fetch.")
            return
        has_weights = profile is not None and any(ref.hf for ref in profile.weights)
        needs_image = snapshot is None or snapshot.daemon.runtime != "process"
        if needs_image or not has_weights:  # without either, the daemon says why nothing is fetched
            await self._pull_image(name)
        if has_weights:
            await self._pull_weights(name, "Image and weights" if needs_image else "The weights")

    async def _pull_image(self, name: str) -> None:
        async with aclosing(self._host.link.pull(profile=name)) as steps:
            async for step in steps:
                share = f" {step.fraction * 100:.0f} %" if step.fraction is not None else ""
                self._host.say(f"{step.image}: {'there' if step.done else step.detail + share}")

    async def _pull_weights(self, name: str, fetched: str) -> None:
        if not self.is_local:
            there = "Image there. " if fetched.startswith("Image") else ""
            self._host.say(f"{there}Weights: `sparkdash pull {name}` on the daemon's box.")
            return
        async with aclosing(self.commands.pull_weights(name)) as weights:
            async for told in weights:
                self._host.say(f"{name}: {dialog_texts.weights_text(told)}")
        self._host.say(f"{name}: {fetched.lower()} are there.")

    @property
    def is_local(self) -> bool:
        """Whether the daemon runs on this box, so that its files are here."""
        snapshot = self._host.view.snapshot
        if self._host.link.address.uds is not None:
            return True
        return snapshot is not None and snapshot.daemon.host.partition(" ")[0] == platform.node()

    def _must_be_local(self, why: str) -> None:
        if not self.is_local:
            raise AdmissionError(f"{why} This dashboard runs on another one.", code="not_local")


def _draft(file: Path, folder: Path) -> Path:
    """Copy a profile file and its neighbours, which it may build upon."""
    own: Sequence[Path] = [one for one in file.parent.iterdir() if one.suffix in SUFFIXES and one.is_file()]
    for one in own:
        shutil.copyfile(one, folder / one.name)
    return folder / file.name
