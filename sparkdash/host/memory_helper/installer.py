"""Installation and removal of the memory helper's files, as root.

Owns: permission to write, replacing each file whole, and the reload of systemd. Must not know the files' content, nor
the question to the user. Rule: an invalid sudo rule disables sudo for everybody. So `visudo` checks it first, under a
name with a dot, which sudo ignores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkdash.errors import HostError
from sparkdash.host.memory_helper.unit_files import NAME, RULE, SYSTEMCTL, UNIT, HelperFile, ours

BOX = Path("/")
LIMIT_S = 60.0


def install(files: Sequence[HelperFile], root: Path = BOX, *, force: bool = False) -> list[str]:
    """Write the files below `root`, reload systemd's units if that is this box, and return the paths.

    Raises:
        HostError: needs_root, no_sudo, unit_not_ours (without `force`), rule_invalid, folder_unusable,
        systemctl_failed.
    """
    _refuse(root)
    wants_sudo = any(file.path == RULE for file in files)
    if root == BOX and wants_sudo and shutil.which("sudo") is None:
        raise HostError("The helper is started by sudo, which is not installed.", code="no_sudo", hint="Install sudo.")
    places = {_at(root, file.path): file for file in files}
    _refuse_strangers(list(places), force=force)
    _replace_all(places, root)
    _reload(root)
    return [file.path for file in files]


def _replace_all(places: Mapping[Path, HelperFile], root: Path) -> None:
    """Write every file under a new name first, so that a failure leaves all old ones."""
    try:
        for place, file in places.items():
            _write(_fresh(place), file)
        for place in places:
            _fresh(place).replace(place)
    except OSError as error:
        raise _unusable(root, error) from None
    finally:
        for place in places:
            _fresh(place).unlink(missing_ok=True)


def uninstall(root: Path = BOX, *, force: bool = False) -> list[str]:
    """Remove both files below `root`, the rule first, and return their paths.

    Raises:
        HostError: needs_root, unit_not_ours (without `force`), folder_unusable, systemctl_failed.
    """
    _refuse(root)
    there = [path for path in (RULE, UNIT) if _at(root, path).exists()]
    _refuse_strangers([_at(root, path) for path in there], force=force)
    for path in there:
        try:
            _at(root, path).unlink()
        except OSError as error:
            raise _unusable(_at(root, path), error) from None
    if there:
        _reload(root)
    return there


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _refuse(root: Path) -> None:
    if root == BOX and os.geteuid() != 0:
        raise HostError(
            "Only root may do this; nothing was changed.", code="needs_root", hint="Type the command that is shown."
        )


def _refuse_strangers(places: Sequence[Path], *, force: bool) -> None:
    for place in places:
        try:
            stranger = place.exists() and not ours(place.read_text(errors="replace"))
        except OSError as error:
            raise _unusable(place, error) from None
        if stranger and not force:
            raise HostError(
                f"{place} was not written by sparkdash.",
                code="unit_not_ours",
                hint="Look at it first; `--force` replaces or removes it all the same.",
            )


def _fresh(place: Path) -> Path:
    return place.with_name(f"{place.name}.new")


def _write(fresh: Path, file: HelperFile) -> None:
    fresh.parent.mkdir(parents=True, exist_ok=True)
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(file.text)
    fresh.chmod(file.mode)
    if file.path == RULE:
        _check_rule(fresh)


def _check_rule(file: Path) -> None:
    if (visudo := shutil.which("visudo")) is None:
        return
    done = subprocess.run([visudo, "-c", "-f", str(file)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise HostError(
            f"visudo refuses the rule: {(done.stderr or done.stdout).strip()}", code="rule_invalid", hint="Report this."
        )


def _reload(root: Path) -> None:
    if (
        root != BOX or not Path("/run/systemd/system").is_dir()
    ):  # no systemd runs here: it reads the unit when it begins
        return
    for words in (("daemon-reload",), ("reset-failed", NAME)):
        try:
            done = subprocess.run([SYSTEMCTL, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"`systemctl {words[0]}` failed: {error}.", code="systemctl_failed") from None
        if done.returncode and words[0] == "daemon-reload":
            said = (done.stderr or done.stdout).strip().rstrip(".")
            raise HostError(f"`systemctl {words[0]}` failed: {said}.", code="systemctl_failed")


def _unusable(place: Path, error: OSError) -> HostError:
    return HostError(f"{error.filename or place} cannot be used: {error.strerror or error}.", code="folder_unusable")
