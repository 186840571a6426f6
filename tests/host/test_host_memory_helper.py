"""The memory helper: a unit that only its one user may start, and that nobody waits for without end."""

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparkdash.host.command import CommandResult
from sparkdash.host.memory import helper
from sparkdash.host.memory.helper import MemoryHelper


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    file = tmp_path / helper.NAME
    file.write_text(helper.TEXT)
    return file


class Sudo:
    """Runs what it is handed: keeps the command lines, and ends as told once `go` is set."""

    def __init__(self, ends: CommandResult | OSError) -> None:
        self.ends = ends
        self.asked: list[Sequence[str]] = []
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, argv: Sequence[str]) -> CommandResult:
        self.asked.append(argv)
        self.began.set()
        await self.go.wait()
        if isinstance(self.ends, OSError):
            raise self.ends
        return self.ends


async def test_it_is_started_once_for_all_who_ask_at_the_same_time(unit: Path) -> None:
    sudo = Sudo(CommandResult(0, "", ""))
    helper = MemoryHelper(unit, start=sudo, uid=1000)
    both = [asyncio.create_task(helper.run()) for _ in range(2)]
    await sudo.began.wait()
    both[0].cancel()
    sudo.go.set()
    done = await both[1]
    assert done.ok
    assert done.why is None
    assert sudo.asked == [("sudo", "-n", "/usr/bin/systemctl", "start", "sparkdash-memory.service")]
    await helper.run()
    assert len(sudo.asked) == 2


async def test_it_tells_why_it_did_not_run(unit: Path, tmp_path: Path) -> None:
    refused = Sudo(CommandResult(1, "", "sudo: a password is required\n"))
    missing = Sudo(FileNotFoundError(2, "No such file or directory"))
    late = Sudo(TimeoutError())
    for sudo, why in ((refused, "a password is required"), (missing, "sudo cannot be run"), (late, "did not end")):
        sudo.go.set()
        done = await MemoryHelper(unit, start=sudo, uid=1000).run()
        assert not done.ok
        assert why in (done.why or "")
    none = MemoryHelper(tmp_path / "none", start=refused)
    assert not none.available()
    assert "not installed" in ((await none.run()).why or "")
    assert len(refused.asked) == 1


async def test_root_needs_no_sudo(unit: Path) -> None:
    sudo = Sudo(CommandResult(0, "", ""))
    sudo.go.set()
    assert (await MemoryHelper(unit, start=sudo, uid=0).run()).ok
    assert sudo.asked == [("/usr/bin/systemctl", "start", "sparkdash-memory.service")]


@pytest.mark.parametrize(
    ("user", "who"), [("spark", "spark"), ("corp\\ann", "#1000"), ("ALL", "#1000"), ("a b", "#1000")]
)
def test_the_rule_is_one_command_for_one_user(user: str, who: str) -> None:
    """No name is read as anything but that user."""
    lines = helper.rule(user, 1000).splitlines()
    assert lines[1:] == [f"{who} ALL=(root) NOPASSWD: /usr/bin/systemctl start sparkdash-memory.service"]
    assert lines[0].startswith(helper.MARK)


def test_the_unit_writes_two_files_and_nothing_else() -> None:
    """The helper's acts, in order, and what keeps it from more. ProtectKernelTunables would keep it from these too."""
    lines = helper.TEXT.splitlines()
    assert [line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart=")] == [
        "/bin/sync",
        "/bin/sh -c 'echo 3 >/proc/sys/vm/drop_caches'",
        "/bin/sh -c 'echo 1 >/proc/sys/vm/compact_memory'",
    ]
    for line in ("Type=oneshot", "TimeoutStartSec=60", "ProtectSystem=strict", "ReadOnlyPaths=/proc /sys", "PrivateNetwork=yes",
                 "ReadWritePaths=/proc/sys/vm/drop_caches /proc/sys/vm/compact_memory", "CapabilityBoundingSet=",
                 "NoNewPrivileges=yes", "ProtectHome=yes", "SystemCallFilter=@system-service"):  # fmt: skip
        assert line in lines
    assert not [line for line in lines if line.startswith(("ProtectKernelTunables", "[Install]", "User="))]


def test_root_gets_no_rule() -> None:
    assert "NOPASSWD" not in helper.install_script("root", 0)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_the_unit(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if helper.NAME in line]
    assert not ours
    assert done.returncode == 0, done.stderr
