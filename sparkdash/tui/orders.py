"""Orders: everything that a person can have the daemon do, with a question first where that stops something.

Rule: only what stops something is confirmed, and the question names what stops.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Protocol

from sparkdash import paths
from sparkdash.domain.phrases import last_good_lines
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
    from sparkdash.tui.daemon_client import DaemonClient


Side = Literal["A", "B"]


SUFFIXES = (".yaml", ".yml")
ASKING = ("switch", "describe", "flip")
"""Orders that ask the daemon before their dialog opens."""


class AppServices(Protocol):
    """Services of the app to orders, panels and pages."""

    view: View
    orders: Orders
    braille: bool

    @property
    def daemon(self) -> DaemonClient: ...

    @property
    def box(self) -> BoxLook | None: ...

    async def ask(
        self, title: str, told: LinesForWidth, *, yes: str | None = None, again: str | None = None
    ) -> bool: ...

    async def choose(
        self, title: str, told: LinesForWidth, *, yes: str | None, again: str, others: Mapping[str, str]
    ) -> str: ...

    def release_keys(self) -> None: ...

    def say(self, text: str, *, bad: bool = False) -> None: ...

    def run_order(self, order: Coroutine[None, None, None]) -> None: ...

    def edit_file(self, file: Path, line: int) -> None: ...

    def set_idle(self, idle: IdleBox) -> None: ...

    def choose_hero(self, hero: HeroChoice) -> None: ...

    def arrange(self, shown: Arrangement) -> None: ...

    def open_history(self, figure: str, profile: str) -> None: ...


class NothingToDoError(Exception):
    """Ends an order with a short answer on the notice row."""


Arguments = ParamSpec("Arguments")


def order(
    carry_out: Callable[Concatenate[Orders, Arguments], Coroutine[None, None, None]],
) -> Callable[Concatenate[Orders, Arguments], None]:
    """Have a coroutine return at once: it runs in a task of its own, and its error is shown."""

    def begin(self: Orders, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        self.run((carry_out.__name__, args), carry_out(self, *args, **kwargs))

    return begin


class Orders:
    """Orders to the daemon that keys give.

    Rule: a file of the owner is replaced only by a text that was checked; the old one stays otherwise.
    """

    def __init__(self, host: AppServices) -> None:
        self._host = host
        self._under_way: set[object] = set()
        self.is_thinking = False
        """Whether the daemon is asked for what a dialog will show: keys wait for the dialog."""

    def run(self, key: tuple[str, object], coroutine: Coroutine[None, None, None]) -> None:
        """Run an order, once: a key that is pressed again while the daemon thinks is no second question."""
        if key in self._under_way:
            coroutine.close()
        else:
            self._under_way.add(key)
            self.is_thinking = key[0] in ASKING
            self._host.run_order(self._carried_out(key, coroutine))

    async def _carried_out(self, key: object, coroutine: Coroutine[None, None, None]) -> None:
        try:
            await coroutine
        except NothingToDoError as answer:
            self._host.say(str(answer))
        except SparkdashError as error:
            await self._host.ask("that did not work", partial(dialog_texts.error_lines, error))
        finally:
            self._under_way.discard(key)
            self._host.release_keys()

    @cached_property
    def commands(self) -> LocalCommands:
        return LocalCommands(self._host.daemon.address)

    @property
    def _snapshot(self) -> Snapshot:
        if self._host.view.snapshot is None:
            raise NothingToDoError("No daemon is connected yet.")
        return self._host.view.snapshot

    @order
    async def release(self, name: str) -> None:
        if name not in self._snapshot.parked:
            raise NothingToDoError(f"{name} is not parked.")
        await self._host.daemon.release(profile=name)
        self._host.say(f"{name} may be tried again")

    @order
    async def extend_load(self) -> None:
        swaps = self._snapshot.swaps_under_way
        stalled = [swap.target for swap in swaps if swap.target and swap.still_since is not None]
        if not stalled:
            raise NothingToDoError("No load stands still.")
        for name in stalled:
            await self._host.daemon.extend_load(profile=name)
            self._host.say(f"{name} may go on standing still; x cancels it.")

    @order
    async def reload(self) -> None:
        await self._host.daemon.reload()
        self._host.say("The profile files were read again.")

    @order
    async def end_measuring(self) -> None:
        now = self._host.view.measuring
        if now is None:
            raise NothingToDoError("No measurement is running.")
        await self._host.daemon.end_measuring()
        self._host.say(f"{now.run} stops; r on the A/B page resumes it")

    @order
    async def describe(self, name: str) -> None:
        """Say what a profile needs, what would leave, and how it failed; offer the switch and the file."""
        snapshot = self._snapshot
        profile = snapshot.profile(name)
        if profile is None:
            return
        if profile.engine.is_remote:
            self._host.say(f"{name} is a remote service: it needs nothing on this box.")
        elif profile.cannot_run:
            await self._host.ask(f"{name} cannot run as published", partial(dialog_texts.cannot_run_lines, profile))
        else:
            plan = await self._host.daemon.plan(name=name)
            runs = plan.expected_s == 0 and not plan.evict
            yes = None if runs or plan.fits is False else "switch"
            await self._offer(name, partial(dialog_texts.description_lines, plan, snapshot), yes)

    @order
    async def open_swap(self, ident: str) -> None:
        """Show how a swap went, a failure with its log, or why the guard ended an engine; offer another try."""
        snapshot = self._snapshot
        for kill in snapshot.guard.kills if snapshot.guard else ():
            if dialog_texts.kill_key(kill) == ident:
                await self._host.ask(kill.profile, partial(dialog_texts.kill_lines, kill))
        swap = next((one for one in snapshot.swaps if one.id == ident), None)
        if swap is not None and swap.target is not None:
            await self._offer(swap.target, partial(dialog_texts.swap_lines, swap), "try again")
        elif swap is not None:
            await self._host.ask(f"stop of {', '.join(swap.evict)}", partial(dialog_texts.swap_lines, swap))

    async def _offer(self, name: str, told: LinesForWidth, yes: str | None) -> None:
        answer = await self._host.choose(name, told, yes=yes, again="s", others={"e": "edit"})
        if answer == "e":
            self.edit(name)
        elif answer:
            self.switch(name)

    def end(self, name: str | None = None) -> None:
        """End the load or the engine of a profile; without a name the load under way, else the large engine."""
        snapshot = self._host.view.snapshot
        if any(name in (None, swap.target) for swap in self._host.view.swaps):
            self.cancel()
        elif name is not None and snapshot is not None and name not in snapshot.engines:
            self._host.say(f"{name} does not run.")
        else:
            self.stop(name)

    @order
    async def switch(self, name: str) -> None:
        snapshot = self._snapshot
        profile = snapshot.profile(name)
        if profile and profile.cannot_run:
            self.describe(name)
            return
        plan = await self._host.daemon.plan(name=name)
        if plan.expected_s == 0 and not plan.evict:
            self._host.say(f"{name} is running already.")
        elif await self._agreed(plan, snapshot, f"switch to {name}?", None):
            await self._host.daemon.use(profile=name)
            self._host.say(f"{name} is starting.")

    @order
    async def flip(self) -> None:
        snapshot = self._snapshot
        a, b = snapshot.toggle_a, snapshot.toggle_b
        if a is None or b is None:
            raise NothingToDoError("Mark two profiles first: page 2, keys a and b.")
        target = b if snapshot.active and snapshot.active.profile == a else a
        plan = await self._host.daemon.plan(name=target)
        if plan.expected_s == 0 and not plan.evict:
            self._host.say(f"{a} and {b} both run already.")
        elif await self._agreed(plan, snapshot, f"flip to {target}?", "t"):
            await self._host.daemon.toggle(flip=True)
            self._host.say(f"{target} is starting.")

    async def _agreed(self, plan: Plan, snapshot: Snapshot, title: str, again: str | None) -> bool:
        """Ask if the plan stops something or the file is broken; show a plan that does not fit without offering it."""
        problems = snapshot.problems
        broken = last_good_lines(await self._host.daemon.profile(name=plan.profile), problems) if problems else []
        told = partial(dialog_texts.switch_question, plan, snapshot, warnings=broken)
        if plan.fits is False:
            await self._host.ask(title, told)
            return False
        if not plan.evict and not broken:
            return True
        return await self._host.ask(title, told, yes="switch", again=again)

    @order
    async def mark(self, name: str, side: Side) -> None:
        snapshot = self._snapshot
        a, b = snapshot.toggle_a, snapshot.toggle_b
        other = b if side == "A" else a
        if other == name:
            raise NothingToDoError(
                f"{name} is {'B' if side == 'A' else 'A'} already; mark another profile there first."
            )
        await self._host.daemon.toggle(a=name if side == "A" else None, b=name if side == "B" else None)
        self._host.say(f"{name} is {side}; t flips." if other else f"{name} is {side}; mark the other one.")

    @order
    async def stop(self, name: str | None = None) -> None:
        snapshot = self._snapshot
        engine = snapshot.engines.get(name) if name else self._host.view.engine
        if engine is None:
            raise NothingToDoError("No engine is running.")
        verb, yes, said = "stop", "stop", "is stopping."
        told = partial(dialog_texts.stop_question, engine.profile, snapshot)
        if engine.is_foreign:
            verb, yes, said = "stop using", "stop using it", "is no longer used; its server keeps running."
            told = partial(dialog_texts.stop_using_question, engine.profile, engine.url)
        if await self._host.ask(f"{verb} {engine.profile}?", told, yes=yes, again="x"):
            await self._host.daemon.stop(profile=engine.profile)
            self._host.say(f"{engine.profile} {said}")

    @order
    async def cancel(self) -> None:
        swaps = self._host.view.swaps
        if not swaps:
            raise NothingToDoError("No swap is under way.")
        which = "this swap" if len(swaps) == 1 else f"{len(swaps)} swaps"
        if await self._host.ask(
            f"cancel {which}?", partial(dialog_texts.cancel_question, swaps), yes="cancel", again="x"
        ):
            await self._host.daemon.cancel()
            self._host.say("The swap is cancelled." if len(swaps) == 1 else f"{len(swaps)} swaps are cancelled.")

    @order
    async def cancel_request(self, request_id: str) -> None:
        snapshot = self._snapshot
        request = snapshot.requests.get(request_id)
        if request is None:
            raise NothingToDoError("That request has ended already.")
        if await self._host.ask(
            "end this request?", partial(dialog_texts.end_request_question, request), yes="end it", again="x"
        ):
            await self._host.daemon.cancel_request(request_id=request_id)
            self._host.say("The request is ended; its client gets the reason.")

    @order
    async def resume_run(self, run: str | None = None) -> None:
        run = run or next((one.id for one in await self._host.daemon.runs() if one.ended_at is None), None)
        if run is None:
            raise NothingToDoError("No run is unfinished.")
        await self._host.daemon.resume_run(run=run)
        self._host.say(f"{run} resumes.")

    @order
    async def doctor(self) -> None:
        self._host.say("The doctor examines the box…")
        diagnosis = await self._host.daemon.doctor()
        await self._host.ask("doctor", partial(dialog_texts.diagnosis_lines, diagnosis))

    @order
    async def pin(self, name: str) -> None:
        known = await self._host.daemon.settings()
        family = name.partition("/")[0]
        if name in known.pinned:
            value, said = None, f"{name} is not pinned any more: other models may make it leave."
        elif family in known.pinned:
            value, said = "false", f"{name} is not pinned any more; the rest of {family} stays pinned."
        else:
            value, said = "true", f"{name} is pinned: it stays until a person stops it."
        if value is None and family != name and family in known.pinned:
            value = "false"
        await self._host.daemon.change_setting(key=["policy", name, "pinned"], value=value)
        self._host.say(said)

    @order
    async def preload(self, name: str) -> None:
        now = (await self._host.daemon.settings()).preload
        listed = [one for one in now if one != name] if name in now else [*now, name]
        value = json.dumps(listed, ensure_ascii=False) if listed else None
        await self._host.daemon.change_setting(key=["preload"], value=value)
        order = f" as number {len(listed)}" if len(listed) > 1 else ""
        self._host.say(
            f"{name} is loaded{order} when the daemon starts." if name in listed else f"{name} is preloaded no more."
        )

    @order
    async def dry_run(self, name: str) -> None:
        self._must_be_local("The command of a profile is made from the files of the daemon's box.")
        told = await self.commands.dry_run(name)
        await self._host.ask(f"what starts {name}", partial(dialog_texts.command_lines, told))

    @order
    async def edit_settings(self) -> None:
        self._must_be_local("config.toml lies on the daemon's box.")
        from sparkdash.settings import parse_settings  # the dashboard's start is short without them

        file = Path((await self._host.daemon.settings()).file)
        with TemporaryDirectory(prefix="sparkdash-edit-") as folder:
            draft = Path(folder) / file.name
            old = paths.read_small_file(file) if os.path.exists(file) else b""  # noqa: ASYNC240, PTH110 - a small file
            draft.write_bytes(old)
            while True:
                self._host.edit_file(draft, 1)
                if draft.read_bytes() == old:
                    raise NothingToDoError("config.toml: nothing was changed.")
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

    @order
    async def edit(self, name: str) -> None:
        if self._host.view.simulated:
            raise NothingToDoError(f"{name} is simulated: there is nothing to edit.")
        self._must_be_local("The file lies on the daemon's box.")
        profile = await self._host.daemon.profile(name=name)
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
        return own if await self._host.ask(f"edit a copy of {name}?", told, yes="copy and edit", again="e") else None

    async def _edited(self, name: str, file: Path, target: Path, line: int) -> None:
        with TemporaryDirectory(prefix="sparkdash-edit-") as folder:
            for one in file.parent.iterdir():  # the profile may build upon its neighbours
                if one.suffix in SUFFIXES and one.is_file():
                    shutil.copyfile(one, Path(folder) / one.name)
            draft = Path(folder) / file.name
            before = draft.read_bytes()
            while True:
                self._host.edit_file(draft, line)
                if draft.read_bytes() == before:
                    raise NothingToDoError(f"{name}: nothing was changed.")
                self._host.say(f"{name}: the edit is checked…")
                found = await self.commands.check(draft)
                told = partial(dialog_texts.finding_lines, found, str(draft), file.name)
                if not dialog_texts.errors_of(found):
                    break
                if not await self._host.ask("the edit is not valid; the old file stays", told, yes="edit again"):
                    raise NothingToDoError(f"{name}: the edit was dropped, the old file is as it was.")
            self._keep(draft, target)
        await self._host.daemon.reload()
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

    @order
    async def pull(self, name: str) -> None:
        snapshot = self._host.view.snapshot
        profile = snapshot.profile(name) if snapshot else None
        if profile and profile.simulated:
            raise NothingToDoError(f"{name} is simulated: there is nothing to fetch.")
        has_weights = profile is not None and any(ref.hf for ref in profile.weights)
        needs_image = snapshot is None or snapshot.daemon.runtime != "process"
        if needs_image or not has_weights:  # without either, the daemon says why nothing is fetched
            await self._pull_image(name)
        if has_weights:
            await self._pull_weights(name, "Image and weights" if needs_image else "The weights")

    async def _pull_image(self, name: str) -> None:
        async with aclosing(self._host.daemon.pull(profile=name)) as steps:
            async for step in steps:
                share = f" {step.fraction * 100:.0f} %" if step.fraction is not None else ""
                self._host.say(f"{step.image}: {'there' if step.done else step.detail + share}")

    async def _pull_weights(self, name: str, fetched: str) -> None:
        if not self.is_local:
            there = "Image there. " if fetched.startswith("Image") else ""
            raise NothingToDoError(f"{there}Weights: `sparkdash pull {name}` on the daemon's box.")
        async with aclosing(self.commands.pull_weights(name)) as weights:
            async for told in weights:
                self._host.say(f"{name}: {dialog_texts.weights_text(told)}")
        self._host.say(f"{name}: {fetched.lower()} are there.")

    @property
    def is_local(self) -> bool:
        """Whether the daemon runs on this box, so that its files are here."""
        snapshot = self._host.view.snapshot
        if self._host.daemon.address.uds is not None:
            return True
        return snapshot is not None and snapshot.daemon.host.partition(" ")[0] == platform.node()

    def _must_be_local(self, why: str) -> None:
        if not self.is_local:
            raise AdmissionError(f"{why} This dashboard runs on another one.", code="not_local")
