"""`sparkdash service install --helper`: install the memory helper, the only part of sparkdash that needs root."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from shlex import join
from typing import Annotated

import typer

from sparkdash.cli.output.screen import confirm, is_interactive, print_note, print_text
from sparkdash.errors import HostError

Helper = Annotated[bool, typer.Option("--helper", help="The memory helper (needs root) instead of the daemon.")]
User = Annotated[str | None, typer.Option("--user", help="User who may start the helper.", metavar="NAME")]
Root = Annotated[Path | None, typer.Option("--root", help="Write the helper's files below this folder.", metavar="DIR")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def install_helper(user: str | None, *, root: Path | None, yes: bool, force: bool, dry_run: bool) -> None:
    """Print the two files, then write them if run as root and confirmed; otherwise raise with the command to type."""
    from sparkdash.host.memory_helper import installer, unit_files

    name, uid = _who(user)
    files = unit_files.files(name, uid)
    for file in files:
        print_text(f"# {file.path} (mode {file.mode:04o})\n{file.text}")
    if dry_run:
        return
    if not _may_write(root):
        _hand_over("install", "--user", name)
    _ask(f"Write these {len(files)} files below {root}?" if root else f"Write these {len(files)} files?", yes=yes)
    written = installer.install(files, root or Path("/"), force=force)
    print_note(f"Wrote {' and '.join(written)}.")
    if root is None:
        print_note(f"{name} can test it (the kernel drops its caches): {join(_start(uid))}")


def uninstall_helper(*, root: Path | None, force: bool, dry_run: bool) -> None:
    """Remove the files; without root, raise with the command to type."""
    from sparkdash.host.memory_helper import installer, unit_files

    if dry_run:
        return print_text(f"rm {unit_files.RULE}\nrm {unit_files.UNIT}\nsystemctl daemon-reload")
    if not _may_write(root):
        _hand_over("uninstall")
    removed = installer.uninstall(root or Path("/"), force=force)
    return print_note(f"Removed {' and '.join(removed)}." if removed else "The memory helper is not installed.")


def refuse_misplaced_options(helper: bool, **given: object) -> None:
    """Raise HostError for helper options without --helper and daemon options with it."""
    for option, value in given.items():
        if value:
            other = "does not go with" if helper else "needs"
            raise HostError(f"--{option.replace('_', '-')} {other} --helper.", code="option_unused")


def _who(user: str | None) -> tuple[str, int]:
    import pwd

    name = user or (os.geteuid() == 0 and os.environ.get("SUDO_USER")) or getpass.getuser()
    try:
        return name, pwd.getpwnam(name).pw_uid
    except KeyError:
        raise HostError(f"The user {name} does not exist on this box.", code="user_unknown") from None


def _may_write(root: Path | None) -> bool:
    return root is not None or os.geteuid() == 0


def _hand_over(*words: str) -> None:
    """Raise HostError with the sudo command to type: sparkdash itself never asks for a password.

    `-B` keeps root from leaving files in the owner's installation.
    """
    verb, *rest = words
    command = join(["sudo", sys.executable, "-B", "-m", "sparkdash", "service", verb, "--helper", *rest])
    raise HostError("This needs root. Nothing was changed.", code="needs_root", hint=f"Type: {command}")


def _start(uid: int) -> tuple[str, ...]:
    from sparkdash.host.memory_helper.unit_files import START

    return START if uid == 0 else ("sudo", "-n", *START)


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not is_interactive():
        raise HostError(
            "No terminal to ask on. Nothing was changed.",
            code="not_confirmed",
            hint="Use --yes to go ahead without a question.",
        )
    if not confirm(question):
        raise HostError("Nothing was changed.", code="not_confirmed")
