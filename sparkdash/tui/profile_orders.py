"""Orders for one profile: pin, preload, edit, dry run, pull.

Owns: the order of their steps. Must not know widgets: the app is a ProfileHost.
Rule: a file of the owner is replaced only by a text that was checked; the old one stays otherwise.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from sparkdash import paths
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.locked_file import replace_file
from sparkdash.tui.lines import profile_texts, questions
from sparkdash.tui.local_commands import LocalCommands
from sparkdash.tui.orders import OrderHost

SUFFIXES = (".yaml", ".yml")


class ProfileHost(OrderHost, Protocol):
    """The app, as far as these orders need it."""

    def edit_file(self, file: Path, line: int) -> None:
        """Hand the terminal to the owner's editor until it ends. Raises HostError."""
        ...


class ProfileOrders:
    """Orders of the profiles page. Each method returns at once; the order runs in its own task."""

    def __init__(self, host: ProfileHost) -> None:
        self._host = host
        self._commands: LocalCommands | None = None

    @property
    def commands(self) -> LocalCommands:
        """Commands of this box, which speak to the same daemon."""
        if self._commands is None:
            self._commands = LocalCommands(self._host.link.address)
        return self._commands

    def pin(self, profile: str) -> None:
        """Keep a profile's engine until a person stops it, or end that."""
        self._run(self._pin(profile))

    def preload(self, profile: str) -> None:
        """Load a profile when the daemon starts, or end that."""
        self._run(self._preload(profile))

    def edit(self, profile: str) -> None:
        """Open the profile's file in the owner's editor, and check the result before it is kept."""
        self._run(self._edit(profile))

    def edit_settings(self) -> None:
        """Open config.toml in the owner's editor; a text that is not valid is not kept."""
        self._run(self._edit_settings())

    def dry_run(self, profile: str) -> None:
        """Show the command that would start the profile's engine."""
        self._run(self._dry_run(profile))

    def pull(self, profile: str) -> None:
        """Fetch a profile's image, and on the daemon's own box its weights."""
        self._run(self._pull(profile))

    def _run(self, order: Awaitable[object]) -> None:
        self._host.run_order(self._carry_out(order))

    async def _carry_out(self, order: Awaitable[object]) -> None:
        try:
            await order
        except SparkdashError as error:
            await self._host.ask("that did not work", partial(questions.error_lines, error))

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
        await self._host.ask(f"what starts {name}", partial(profile_texts.command_lines, told))

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
                    told = partial(questions.error_lines, error)
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
        told = partial(profile_texts.copy_question, name, own)
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
                told = partial(profile_texts.finding_lines, found, str(draft), file.name)
                if not profile_texts.errors_of(found):
                    break
                if not await self._host.ask("the edit is not valid; the old file stays", told, yes="edit again"):
                    self._host.say(f"{name}: the edit was dropped, the old file is as it was.")
                    return
            self._keep(draft, target)
        await self._host.link.reload()
        self._host.say(f"{name}: saved in {target}. A running engine keeps its old version until it is loaded again.")
        if profile_texts.warnings_of(found):
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
                self._host.say(f"{name}: {profile_texts.weights_text(told)}")
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
