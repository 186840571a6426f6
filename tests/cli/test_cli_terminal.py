"""The command line on a real terminal: colours, the line drawn over, and the question."""

import asyncio
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from fake_daemon import BIRTH, FakeDaemon, engine, summary
from programs import Program

from sparkdash import paths
from sparkdash.api.control import ControlApi
from sparkdash.bench import run_folder
from sparkdash.bench.plan import run_plan, suites, sweep
from sparkdash.bench.run import Mode
from sparkdash.cli.bench import measure
from sparkdash.client.client import AsyncClient
from sparkdash.domain.history import RecentFigures
from sparkdash.domain.profile import EngineKind, Profile

Terminal = Callable[..., tuple[int, str]]
Process = subprocess.Popen[bytes]


@pytest.fixture
def terminal() -> Terminal:
    """Runs `sparkdash ARGV` on a pseudo-terminal of 100 columns; (exit code, all that was shown). SIGINT once it has shown
    `interrupted_at` and waits for an answer."""

    def run(*argv: str, typed: str = "", interrupted_at: str = "", **env: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = Program(
            ["-m", "sparkdash", *argv], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **env}, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, typed.encode())
        shown, at = b"", interrupted_at.encode()
        while chunk := _read(ours):
            shown += chunk
            if at and at in shown:
                while not _listens(process.pid):
                    time.sleep(0.01)
                process.send_signal(signal.SIGINT)
                at = b""
        os.close(ours)
        return process.wait(timeout=60), shown.decode().replace("\r\n", "\n")

    return run


def _listens(pid: int) -> bool:
    """The process sleeps in a read of its standard input: it would see an earlier signal only after the read."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    return call[1:2] == ["0x0"] and psutil.Process(pid).status() == psutil.STATUS_SLEEPING


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # Linux says EIO when the other side has closed
        return b""


def test_an_error_stands_out(terminal: Terminal, nobody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    code, shown = terminal("status")
    assert code == 7
    assert shown.startswith("\x1b[31m\x1b[1mError:\x1b[0m No sparkdash daemon answers at http://127.0.0.1:")
    assert "\nHint: Start it with `sparkdash serve`." in shown


def test_no_color_is_respected(terminal: Terminal, nobody: None) -> None:
    _, shown = terminal("status", NO_COLOR="1")
    assert "\x1b" not in shown
    assert shown.startswith("Error: No sparkdash daemon answers")


def test_a_swap_is_one_line_drawn_over(terminal: Terminal, daemon: FakeDaemon) -> None:
    code, shown = terminal("use", "new")
    assert code == 0
    assert "\r\x1b[K[drain] stop reclaim preflight create load warm" in shown
    assert "drain stop reclaim preflight create [load weights 63 %] warm" in shown
    assert shown.endswith("\r\x1b[Knew is ready at http://127.0.0.1:8484/v1 after 43s.\n")


@pytest.mark.parametrize(("said", "code", "used"), [
    ({"typed": "n\n"}, 1, False), ({"interrupted_at": "Go on?"}, 130, False), ({"typed": "y\n"}, 0, True),
], ids=["no", "Ctrl-C", "yes"])  # fmt: skip
def test_what_stops_something_is_asked_for(
    terminal: Terminal, daemon: FakeDaemon, said: dict[str, str], code: int, used: bool
) -> None:
    daemon.set(engines={"old": engine("old")})
    ended, shown = terminal("use", "new", **said)
    assert ended == code
    assert "new replaces old.\nGo on? [y/N]:" in shown
    assert any(path == "/api/use" for _, path, _ in daemon.calls) is used


def test_an_answer_that_is_neither_is_asked_again(terminal: Terminal, daemon: FakeDaemon) -> None:
    daemon.set(engines={"old": engine("old")})
    code, shown = terminal("use", "new", typed="x\nn\n")
    assert code == 1
    assert shown.count("Go on? [y/N]:") == 2
    assert "Error: invalid input" in shown
    assert not any(path == "/api/use" for _, path, _ in daemon.calls)


def test_yes_and_an_empty_box_are_not_asked(terminal: Terminal, daemon: FakeDaemon) -> None:
    assert "Go on?" not in terminal("use", "new")[1]
    assert "Go on?" not in terminal("use", "newer", "--yes")[1]


def test_watching_draws_over(terminal: Terminal, daemon: FakeDaemon) -> None:
    daemon.be_gone_soon_after_a_listener()
    code, shown = terminal("status", "--watch")
    assert code == 7
    assert "sparkdash 0.1.0 on spark-1" in shown
    assert "The daemon went away." in shown


@pytest.mark.parametrize(("no", "ends"), [({"typed": "n\n"}, 1), ({"interrupted_at": "Begin?"}, 130)])
def test_a_sweep_that_is_declined_leaves_no_profiles(
    terminal: Terminal, daemon: FakeDaemon, no: dict[str, str], ends: int
) -> None:
    """The sweep's file is among the owner's profiles only while something may come of it."""
    daemon.set(profiles=tuple(map(summary, ("a", "sweep-a-max-num-seqs/1", "sweep-a-max-num-seqs/2"))))
    daemon.whole["a"] = Profile(name="a", engine=EngineKind.SIM, args={"max-num-seq": 4})
    code, shown = terminal("ab", "a", "--sweep", "max-num-seqs=1..2", NO_COLOR="1", **no)
    assert code == ends
    assert "a does not set max-num-seqs: the sweep adds it. Did you mean max-num-seq?" in shown
    assert "Begin?" in shown
    assert [path for _, path, _ in daemon.calls].count(ControlApi.reload.path) == 2
    assert list((paths.config_dir() / "profiles").iterdir()) == []


def test_an_engine_of_a_sweep_goes_with_its_profile(daemon: FakeDaemon) -> None:
    arms = sweep.parse_sweep("max-num-seqs=1,2").arms(Profile(name="a", engine=EngineKind.SIM))
    daemon.set(engines={name: engine(name) for name in ("a", arms[1].profile)})
    sweep.write_sweep_file("sweep-a-max-num-seqs", "profile: sweep-a-max-num-seqs\n")

    async def tidied() -> None:
        async with AsyncClient() as client:
            await measure.remove_sweep_profiles(client, arms)

    asyncio.run(tidied())
    assert [body for _, path, body in daemon.calls if path == "/api/stop"] == [{"profile": arms[1].profile}]


def test_a_sweep_that_goes_on_has_its_profiles_again(sparkdash: Callable[..., Any], daemon: FakeDaemon) -> None:
    """Another sweep of the same flag may have taken one away meanwhile; this daemon does not look."""
    daemon.set(profiles=tuple(map(summary, ("a", "sweep-a-max-num-seqs/1"))))
    daemon.whole["a"] = Profile(name="a", engine=EngineKind.SIM)
    arms = sweep.parse_sweep("max-num-seqs=1,2").arms(daemon.whole["a"])
    run_folder.create_run_folder(run_plan.new_run(suites.load_suite("smoke"), arms, Mode.SCREEN))
    done = sparkdash("bench", "resume", "--yes")
    assert done.code == 3
    assert "does not read the profiles" in " ".join(done.err.split())
    text = sweep.sweep_file_path("sweep-a-max-num-seqs").read_text()
    assert all(f"max-num-seqs: {value}" in text for value in (1, 2))


@pytest.mark.parametrize(
    ("fails", "told"),
    [(True, "It broke."), (False, "does not read the profiles in {folder}")],
    ids=["it fails", "it reads other profiles, as the demo's does"],
)
def test_a_sweep_whose_daemon_has_no_use_for_it_leaves_no_profiles(
    sparkdash: Callable[..., Any], daemon: FakeDaemon, *, fails: bool, told: str
) -> None:
    daemon.set(profiles=(summary("a"),))
    daemon.whole["a"] = Profile(name="a", engine=EngineKind.SIM)
    if fails:
        daemon.errors[ControlApi.reload.path] = (500, {"message": "It broke.", "code": "internal_error"})
    done = sparkdash("ab", "a", "--sweep", "max-num-seqs=1..2", "--yes")
    folder = paths.config_dir() / "profiles"
    assert done.code == (1 if fails else 3)
    assert told.format(folder=folder) in " ".join(done.err.split())
    assert list(folder.iterdir()) == []


DASHBOARD = [sys.executable, "-c", "from sparkdash.tui.app import run_dashboard; run_dashboard(box=None)"]
"""The dashboard alone: it waits for its daemon, where `sparkdash` would refuse an address at which nobody answers."""


def on_a_terminal(argv: list[str], url: str, shown: bytes, errors: IO[bytes] | None = None) -> tuple[Process, int]:
    """Start it on a pseudo-terminal and wait until it has `shown`; the process, and our end of the terminal."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "SPARKDASH_URL": url}
    to = errors or theirs
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=to, env=env, start_new_session=True)
    os.close(theirs)
    _read_until(ours, shown)
    return process, ours


def _read_until(ours: int, shown: bytes) -> None:
    seen = b""
    while shown not in seen:
        chunk = _read(ours)
        assert chunk, seen
        seen += chunk


SHELL = ["setsid", "--ctty", "env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i"]
NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("argv", "connected", "shown", "restored"),
    [
        (DASHBOARD, False, b"\x1b[?1000h", ("\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h")),
        (DASHBOARD, True, b"spark-1", ("\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h")),
        ([sys.executable, "-m", "sparkdash", "status", "--watch"], True, b"\x1b[?25l", ("\x1b[?25h",)),
    ],
    ids=["dashboard that waits", "dashboard", "status"],
)
def test_a_terminal_is_as_before_after_sigterm(
    daemon: FakeDaemon, tmp_path: Path, argv: list[str], *, connected: bool, shown: bytes, restored: tuple[str, ...]
) -> None:
    """No mouse reports, no second screen, no hidden cursor; the dashboard is drawn there wherever its errors go."""
    daemon.past["recent"] = RecentFigures(begin=BIRTH, step_s=2.0)
    with (tmp_path / "errors").open("wb") as errors:
        process, ours = on_a_terminal(argv, daemon.url if connected else NOBODY, shown, errors)
    process.send_signal(signal.SIGTERM)
    rest = b""
    while chunk := _read(ours):
        rest += chunk
    os.close(ours)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert [sequence for sequence in restored if sequence not in rest.decode()] == []
    assert (tmp_path / "errors").read_text() == ""


@pytest.mark.parametrize("shown", [b"", b"\x1b[?1000h"], ids=["before it begins", "while it is drawn"])
def test_a_dashboard_whose_terminal_is_closed_ends_where_no_sighup_comes(shown: bytes) -> None:
    """As under nohup: it read the end of its input for ever."""
    process, ours = on_a_terminal(DASHBOARD, NOBODY, shown)
    os.close(ours)
    assert process.wait(timeout=60) == -signal.SIGHUP


def test_a_dashboard_reads_the_keys_of_its_terminal_and_a_lone_escape() -> None:
    """Each key is pressed when what the one before it did is on the screen."""
    process, ours = on_a_terminal(DASHBOARD, NOBODY, b"no daemon yet")
    for key, then in ((b"?", b"help: Dash"), (b"\x1b", b"no daemon yet"), ("/é".encode(), "é".encode())):
        os.write(ours, key)
        _read_until(ours, then)
    os.write(ours, b"\x1bq")
    while _read(ours):
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0


def test_ctrl_z_stops_the_dashboard_and_its_shell_brings_it_back_whole() -> None:
    process, ours = on_a_terminal(SHELL, NOBODY, b"$ ")
    begun = ((f"{shlex.join(DASHBOARD)}\n", "help"), ("\x1a", "Stopped"), ("fg\n", "\x1b[?1049h"), ("", "help"))
    for typed, then in (*begun, ("?", "help: Dash"), ("\x1bq", "\x1b[?1049l"), ("exit\n", "exit")):
        os.write(ours, typed.encode())
        _read_until(ours, then.encode())
    assert process.wait(timeout=60) == 0
    os.close(ours)


def test_ctrl_z_only_draws_the_dashboard_anew_where_no_shell_would_continue_it() -> None:
    """As in a pane of tmux that runs nothing else: stopped, it would stay so."""
    process, ours = on_a_terminal(DASHBOARD, NOBODY, b"help")
    for typed, then in (("\x1a", "\x1b[?1049h"), ("", "help"), ("q", "\x1b[?1049l")):
        os.write(ours, typed.encode())
        _read_until(ours, then.encode())
    assert process.wait(timeout=60) == 0
    os.close(ours)
