"""`sparkdash service`: the daemon as a systemd user service, and the memory helper, the only part that needs root.

`sparkdash uninstall`: what sparkdash wrote on this box, and its removal.
"""

import getpass
import os
import shutil
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple

import typer

from sparkdash import paths
from sparkdash.cli.output import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, Yes
from sparkdash.errors import DaemonError, HostError, writing
from sparkdash.paths import read_small_file, read_small_text
from sparkdash.units import DASH


class ServiceAction(StrEnum):
    """Action words of `sparkdash service`."""

    STATUS = "status"
    INSTALL = "install"
    UNINSTALL = "uninstall"


SHOWN = ("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "StatusText")


def service(
    action: Annotated[ServiceAction, typer.Argument(help="What to do.")] = ServiceAction.STATUS,
    port: Annotated[int | None, typer.Option(help="install: port for clients.", min=1, max=65535)] = None,
    helper: Annotated[bool, typer.Option("--helper", help="Print a script for root: the memory helper.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the daemon as a service of your own systemd.

    systemd starts the daemon at boot or login, and restarts it when it fails. `install` writes the user unit, enables
    it, and (re)starts the daemon under it; running engines keep running, as the new daemon adopts them. Tokens belong
    into the file `environment` in the config folder, as NAME=value lines. `uninstall` stops the daemon and removes the
    unit; engines keep running. `status` tells whether the unit is written, enabled and running.

    With --helper: print a shell script that installs (or removes) a system unit which empties the page cache and
    compacts memory, and a sudo rule that lets you start it without a password. Nothing is written before root runs it.

    \b
    Examples:
      sparkdash service
      sparkdash service install --port 9000
      sparkdash service install --dry-run
      sparkdash service install --helper | sudo sh
      sparkdash stop --all && sparkdash service uninstall
      sparkdash service status --json | jq -r .systemd.ActiveState
    """
    if action is ServiceAction.STATUS:
        return _status(as_json=as_json)
    if helper:
        from sparkdash.host.memory import helper as texts

        remove = action is ServiceAction.UNINSTALL
        return print_text(texts.REMOVE if remove else texts.install_script(getpass.getuser(), os.getuid()), nl=False)
    if action is ServiceAction.INSTALL:
        return install_service(port, dry_run=dry_run)
    return uninstall_service(dry_run=dry_run)


def install_service(port: int | None = None, *, dry_run: bool = False) -> None:
    from sparkdash.host import systemd

    path, text = _path(), _text(port)
    steps = _steps("daemon-reload", f"enable {systemd.NAME}", f"restart {systemd.NAME}")
    if dry_run:
        return print_text(f"# {path}\n{text}\n" + "\n".join(f"# {step}" for step in steps))
    _refuse_foreign_file(path)
    _refuse_second_daemon()
    with writing(path, "folder_unusable"):
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.replace_file(path, text.encode(), mode=0o644)
    print_note(f"Wrote {path}.")
    _run(steps)
    print_note("The daemon runs. `sparkdash status` shows it; `journalctl --user -u sparkdash -f` follows its log.")
    if systemd.lingers() is False:
        print_note(
            "The daemon ends with your last logout. `loginctl enable-linger` starts it at boot and keeps it running."
        )
    return None


def uninstall_service(*, dry_run: bool = False) -> None:
    from sparkdash.host import systemd

    path, before, after = _path(), _steps(f"disable --now {systemd.NAME}"), _steps("daemon-reload")
    if dry_run:
        return print_text("\n".join((*before, f"rm {path}", *after)))
    if not path.exists():
        return print_note(f"{path} does not exist.")
    _refuse_foreign_file(path)
    try:
        _run(before)
    except HostError as error:
        if error.code != "no_user_manager":
            raise
        path.unlink()
        return print_note(f"Removed {path}. {error.message}")
    path.unlink()
    _run(after)
    return print_note(f"Removed {path}. Its engines keep running; the next daemon adopts them.")


def _status(*, as_json: bool) -> None:
    from sparkdash.host import systemd

    path = _path()
    written = read_small_text(path) if path.exists() else None
    known, problem = _unit_properties()
    lingers = systemd.lingers()
    program = None if written is None else systemd.program(written)
    facts = {
        "unit": str(path),
        "program": program,
        "written": written is not None,
        "ours": written is not None and systemd.ours(written),
        "lingers": lingers,
        "systemd": known,
        "problem": problem,
    }
    if as_json:
        return print_json(facts)
    whose = "" if not written else "" if systemd.ours(written) else "  (not written by sparkdash)"
    print_text(f"unit      {path if written else DASH}{whose}")
    if program:
        print_text(f"program   {program}{_lost(program)}")
    print_text(f"state     {_state(known)}")
    print_text(f"lingers   {_yes_or_no(lingers)}")
    if problem:
        print_note(problem)
    return None


def _unit_properties() -> tuple[dict[str, str] | None, str | None]:
    from sparkdash.host import systemd

    try:
        said = systemd.systemctl("show", systemd.NAME, *(f"--property={name}" for name in SHOWN))
    except HostError as error:
        return None, error.message
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line), None


def _state(known: dict[str, str] | None) -> str:
    if known is None:
        return DASH
    words = [known.get("UnitFileState") or "not enabled", f"{known.get('ActiveState')} ({known.get('SubState')})"]
    if known.get("ActiveState") == "active":
        words.append(f"pid {known.get('MainPID')}, {known.get('NRestarts')} restarts, {known.get('StatusText')}")
    return ", ".join(words)


def _lost(program: str) -> str:
    return "" if Path(program).exists() else "  no longer exists: `sparkdash service install` writes the unit again"


def _yes_or_no(fact: bool | None) -> str:
    return DASH if fact is None else "yes" if fact else "no"


def _path() -> Path:
    from sparkdash.host import systemd

    return systemd.unit_folder() / systemd.NAME


def _text(port: int | None) -> str:
    from sparkdash.client.launch import COMMAND
    from sparkdash.host import systemd

    command = [*COMMAND, *(["--port", str(port)] if port else [])]
    return systemd.text(command, paths.config_dir() / "environment", os.environ)


def _steps(*commands: str) -> list[str]:
    return [f"systemctl --user {command}" for command in commands]


def _run(steps: Sequence[str]) -> None:
    from sparkdash.host.systemd import systemctl

    for step in steps:
        print_note(step)
        systemctl(*step.split()[2:])


def _refuse_foreign_file(path: Path) -> None:
    from sparkdash.host import systemd

    if path.exists() and not systemd.ours(read_small_file(path).decode(errors="replace")):
        raise HostError(
            f"{path} was not written by sparkdash.", code="unit_not_ours", hint="Read it, and move it away first."
        )


def _refuse_second_daemon() -> None:
    """Refuse to install while a daemon started by hand holds the lock.

    Asking systemd first also reveals, before anything is written, whether there is a user manager.
    """
    from sparkdash.client.client import Client
    from sparkdash.host import systemd
    from sparkdash.host.systemd import systemctl

    state = systemctl("show", systemd.NAME, "--property=ActiveState").strip().partition("=")[2]
    with Client() as client:
        if state == "active" or not client.health():
            return
    raise DaemonError(
        "A sparkdash daemon runs already, outside systemd.",
        code="daemon_running",
        hint="End it with `sparkdash stop --daemon` (its engines keep running), then install again.",
    )


_COMPLETIONS = (".bash_completions/sparkdash.sh", ".zfunc/_sparkdash", ".config/fish/completions/sparkdash.fish")
_LOOK = "may hold other files: look, then remove it"


class Left(NamedTuple):
    """A file or folder that sparkdash wrote; `instead` says what a person does about one that is not removed."""

    what: str
    path: Path
    instead: str | None = None


def uninstall(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is there.")] = False, yes: Yes = False
) -> None:
    """Remove what sparkdash left on this box.

    That is the service, settings and profiles, recorded history, caches and shell completion. Weights and images stay.
    Files of clients stay too, as they are yours: each is named with its backup.

    \b
    Examples:
      sparkdash uninstall --dry-run
      sparkdash stop --daemon --all && sparkdash uninstall
    """
    from sparkdash.client.client import Client

    left = list(_left())
    for what, path, instead in left:
        print_text(f"{what:<11} {paths.home_relative(path)}" + (f"\n{'':<11} {instead}" if instead else ""))
    own = [one for one in left if one.instead is None]
    if not left:
        print_note("sparkdash left nothing here.")
    if dry_run or not own:
        return
    with Client() as client:
        if client.health():
            hint = "End it with its engines first: `sparkdash stop --daemon --all`."
            raise DaemonError("A sparkdash daemon runs.", code="daemon_running", hint=hint)
    if not yes and not (is_interactive() and confirm(f"Remove {len(own)} of these?")):
        raise HostError("Nothing was removed.", code="not_confirmed", hint="Use --yes to go ahead without a question.")
    if stays := [error for one in own if (error := _remove(one))]:
        raise HostError(f"Not removed: {'; '.join(stays)}.", code="folder_unusable")
    print_note("Now remove the program itself, as you installed it.")


def _left() -> Iterator[Left]:
    from sparkdash.host import systemd
    from sparkdash.host.memory import helper
    from sparkdash.settings import load_settings

    folders = {
        "settings": paths.config_dir(),
        "records": paths.state_dir(),
        "runs": paths.bench_dir(),
        "caches": load_settings().cache_dir.expanduser(),
        "socket": paths.runtime_dir(),
    }
    seen: list[Path] = []
    for one in (
        Left("service", systemd.unit_folder() / systemd.NAME),
        *(
            Left("helper", Path(file), "sparkdash service uninstall --helper | sudo sh")
            for file in (helper.RULE, helper.UNIT)
        ),
        *(Left(what, path, None if "sparkdash" in path.name else _LOOK) for what, path in folders.items()),
        *(Left("completion", Path.home() / name) for name in _COMPLETIONS),
        *_client_files(),
    ):
        if one.path.exists() and not any(one.path.is_relative_to(path) for path in seen):
            seen.append(one.path)
            yield one


def _client_files() -> Iterator[Left]:
    from sparkdash.connect.clients import RECIPES
    from sparkdash.connect.recipe import GatewayTarget

    target = GatewayTarget("http://127.0.0.1:8484", "model", None)
    setups = (recipe.setup(target) for recipe in RECIPES.values())
    for path in sorted({Path(file.path).expanduser() for setup in setups for file in setup.files if file.path}):
        if backups := sorted(path.parent.glob(f"{path.name}.before-sparkdash-*")):
            yield Left("client", path, f"as before: mv {quote(str(backups[-1]))} {quote(str(path))}")
        elif path.is_file() and b"sparkdash" in read_small_file(path):
            yield Left("client", path, "remove what names sparkdash, or the file")


def _remove(one: Left) -> str | None:
    """Remove it; return what failed. A completion's line in ~/.bashrc goes too: each new shell would complain."""
    try:
        if one.what == "service":
            uninstall_service()
        elif one.path.is_dir():
            shutil.rmtree(one.path)
        else:
            one.path.unlink()
            rc = Path.home() / ".bashrc"
            old = read_small_file(rc) if rc.is_file() else b""
            if old != (new := old.replace(f"source '{one.path}'\n".encode(), b"")):
                paths.replace_file(rc, new, mode=rc.stat().st_mode & 0o777)
    except OSError as error:
        return f"{one.path} ({error.strerror})"
    return None
