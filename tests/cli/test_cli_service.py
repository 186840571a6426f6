"""`sparkdash service`, with a systemctl that writes down what it is asked, and the script of the memory helper."""

import getpass
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon

from sparkdash.host import systemd
from sparkdash.host.memory import helper as texts

Run = Callable[..., Any]
NO_BUS = "Failed to connect to bus: No medium found"


class Systemctl:
    """A program on PATH in front of the real one; it says and exits as told, and keeps what it was asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.answer("ActiveState=inactive\n")

    def answer(self, out: str, *, err: str = "", code: int = 0) -> None:
        self._folder.mkdir(exist_ok=True)
        (self._folder / "out").write_text(out)
        (self._folder / "err").write_text(err)
        program = self._folder / "systemctl"
        program.write_text(f'#!/bin/sh\ncd {self._folder}\necho "$@" >>asked\ncat out\ncat err >&2\nexit {code}\n')
        program.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """Command lines, without those that only look."""
        file = self._folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.removeprefix("--user ") for line in lines if " show " not in line]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    """The program, and a folder of units of the test's own."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return Systemctl(tmp_path / "bin")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    return tmp_path / "xdg" / "systemd" / "user" / "sparkdash.service"


def test_install_writes_enables_and_starts(
    sparkdash: Run, systemctl: Systemctl, unit: Path, nobody: None, own_folders: Path
) -> None:
    done = sparkdash("service", "install", "--port", "9000")
    assert done.code == 0, done.err
    text = unit.read_text()
    assert f"ExecStart={sys.executable} -P -m sparkdash serve --port 9000\n" in text
    assert f"Environment=SPARKDASH_STATE_DIR={own_folders / 'state'}\n" in text
    assert f"EnvironmentFile=-{own_folders / 'config' / 'environment'}\n" in text
    assert systemctl.asked == ["daemon-reload", "enable sparkdash.service", "restart sparkdash.service"]
    assert "systemctl --user restart sparkdash.service" in done.err
    assert sparkdash("service", "install").code == 0  # ours may be written anew
    assert "--port" not in unit.read_text()


def test_the_unit_keeps_engines_and_answers_the_watchdog(own_folders: Path) -> None:
    text = systemd.text(["/x/python", "-m", "sparkdash", "serve"], Path("/c/environment"), {})
    for line in ("Type=notify", "NotifyAccess=main", "KillMode=process", "OOMPolicy=continue", "Restart=on-failure",
                 "RestartPreventExitStatus=2 7", "WatchdogSec=60", "WantedBy=default.target"):  # fmt: skip
        assert f"\n{line}\n" in text
    assert systemd.ours(text)


@pytest.mark.parametrize(
    ("path", "written"),
    [("/opt/my python/bin/python", '"/opt/my python/bin/python"'), ("/opt/100%/py", "/opt/100%%/py"),
     ("/opt/$x/py", "/opt/$$x/py"), ('/opt/"q"/py', '"/opt/\\"q\\"/py"')],
)  # fmt: skip
def test_unusual_paths_are_written_as_systemd_reads_them(path: str, written: str) -> None:
    """Spaces, specifiers, variables, quotes (systemd.syntax(7))."""
    text = systemd.text([path, "serve"], Path("/c"), {})
    assert f"ExecStart={written} serve\n" in text
    assert systemd.program(text) == path


def test_a_dry_run_changes_nothing(sparkdash: Run, systemctl: Systemctl, unit: Path) -> None:
    done = sparkdash("service", "install", "--dry-run")
    assert done.code == 0
    assert done.out.startswith(f"# {unit}\n{systemd.MARK}")
    assert "# systemctl --user restart sparkdash.service" in done.out
    assert not unit.exists()
    assert sparkdash("service", "uninstall", "--dry-run").out.splitlines() == [
        "systemctl --user disable --now sparkdash.service", f"rm {unit}", "systemctl --user daemon-reload",
    ]  # fmt: skip
    assert systemctl.asked == []


def test_a_unit_of_somebody_else_stays(sparkdash: Run, systemctl: Systemctl, unit: Path, nobody: None) -> None:
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/mine\n")
    for command in ("install", "uninstall"):
        done = sparkdash("service", command)
        assert done.code == 5
        assert f"{unit} was not written by sparkdash" in done.err
    assert "/mine" in unit.read_text()
    assert systemctl.asked == []


FAILS = '[ "$2" = restart ] || exit 0; echo "Job for sparkdash.service failed." >&2; exit 1'


@pytest.mark.parametrize(
    ("script", "told", "written"),
    [
        ("", ("systemctl is not installed",), False),
        (f"echo '{NO_BUS}' >&2; exit 1", (f"No systemd answers for this user: {NO_BUS}.", "enable-linger"), False),
        (
            FAILS,
            ("sparkdash.service` failed: Job for sparkdash.service failed.", "journalctl --user -u sparkdash"),
            True,
        ),
    ],
    ids=["no systemd", "no user manager", "the start fails"],
)
def test_an_install_that_systemd_does_not_carry_out_says_why(
    sparkdash: Run, unit: Path, stand_in: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nobody: None,
    script: str, told: tuple[str, ...], *, written: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin" if script else str(tmp_path / "empty"))
    if script:
        stand_in("systemctl", script)
    done = sparkdash("service", "install")
    assert done.code == 5
    assert [words for words in told if words not in done.err] == []
    assert unit.exists() is written


def test_a_daemon_started_otherwise_is_in_the_way(
    sparkdash: Run, systemctl: Systemctl, unit: Path, daemon: FakeDaemon
) -> None:
    done = sparkdash("service", "install")
    assert done.code == 7
    assert "outside systemd" in done.err
    assert "sparkdash stop --daemon" in done.err
    assert not unit.exists()
    systemctl.answer("ActiveState=active\n")
    assert sparkdash("service", "install").code == 0


def test_uninstall_stops_disables_and_removes(sparkdash: Run, systemctl: Systemctl, unit: Path, nobody: None) -> None:
    sparkdash("service", "install")
    done = sparkdash("service", "uninstall")
    assert done.code == 0
    assert "Its engines keep running" in done.err
    assert not unit.exists()
    assert systemctl.asked[3:] == ["disable --now sparkdash.service", "daemon-reload"]
    assert "does not exist" in sparkdash("service", "uninstall").err


def test_uninstall_works_without_a_user_manager(sparkdash: Run, systemctl: Systemctl, unit: Path, nobody: None) -> None:
    sparkdash("service", "install")
    systemctl.answer("", err=NO_BUS, code=1)
    done = sparkdash("service", "uninstall")
    assert done.code == 0
    assert not unit.exists()
    assert NO_BUS in done.err


def test_status_tells_what_systemd_tells(sparkdash: Run, systemctl: Systemctl, unit: Path, nobody: None) -> None:
    assert sparkdash("service", "status").out.splitlines()[0] == "unit      -"
    sparkdash("service", "install")
    systemctl.answer(
        "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=77\nNRestarts=1\n"
        "StatusText=serving http://127.0.0.1:8484/v1 with podman\n"
    )
    done = sparkdash("service", "status")
    assert done.out.splitlines()[:3] == [
        f"unit      {unit}",
        f"program   {sys.executable}",
        "state     enabled, active (running), pid 77, 1 restarts, serving http://127.0.0.1:8484/v1 with podman",
    ]
    told = sparkdash("service", "status", "--json").json()
    assert (told["written"], told["ours"], told["systemd"]["MainPID"]) == (True, True, "77")
    systemctl.answer("", err=NO_BUS, code=1)
    unit.write_text(unit.read_text().replace(sys.executable, "/moved/python"))
    lines = sparkdash("service", "status").out.splitlines()
    assert lines[1].startswith("program   /moved/python  no longer exists")
    assert lines[2] == "state     -"


@pytest.fixture
def by_root(tmp_path: Path, stand_in: Callable[[str, str], None]) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Run a script as root would, in a folder in place of /etc, where visudo takes each rule but one for `bad`."""
    stand_in("visudo", "! grep -q '^bad ' \"$2\"")
    for folder in ("systemd/system", "sudoers.d"):
        (tmp_path / "etc" / folder).mkdir(parents=True)

    def run(script: str) -> subprocess.CompletedProcess[str]:
        script = script.replace("/etc/", f"{tmp_path}/etc/")
        return subprocess.run(["sh"], input=script, capture_output=True, text=True, check=False)

    return run


def placed(tmp_path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "etc").rglob("*") if file.is_file()}


def test_the_helper_is_installed_by_a_script_and_removed_without_a_trace(
    sparkdash: Run, tmp_path: Path, systemctl: Systemctl, by_root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sudo reads its rules only from files that nobody may write."""
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    script = sparkdash("service", "install", "--helper").out
    assert f"{getpass.getuser()} ALL=(root) NOPASSWD: /usr/bin/systemctl start sparkdash-memory.service\n" in script
    assert not placed(tmp_path)
    for _ in range(2):  # ours is written anew
        done = by_root(script)
        assert (done.returncode, done.stderr) == (0, "")
    assert placed(tmp_path) == {"sparkdash-memory.service": 0o644, "sparkdash-memory": 0o440}
    assert (tmp_path / texts.UNIT.lstrip("/")).read_text() == texts.TEXT
    assert systemctl.asked[:2] == ["daemon-reload", "reset-failed sparkdash-memory.service"]
    assert by_root(sparkdash("service", "uninstall", "--helper").out).returncode == 0
    assert not placed(tmp_path)


def test_files_of_somebody_else_stay_and_a_rule_that_sudo_cannot_read_never_counts(
    tmp_path: Path, by_root: Any
) -> None:
    assert by_root(texts.install_script("bad", 1000)).returncode == 1
    assert list(placed(tmp_path)) == ["sparkdash-memory.service"]
    rule = tmp_path / texts.RULE.lstrip("/")
    rule.write_text("ann ALL=(ALL) ALL\n")
    for script in (texts.install_script("ann", 1000), texts.REMOVE):
        done = by_root(script)
        assert (done.returncode, "was not written by sparkdash" in done.stderr) == (1, True)
    assert rule.read_text() == "ann ALL=(ALL) ALL\n"
