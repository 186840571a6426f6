"""Help, start-up, the console script, and how the program ends."""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from fake_daemon import FakeDaemon
from programs import Program

from sparkdash import __version__
from sparkdash import demo as demo_program
from sparkdash.cli import OPENING, dashboard, main, running_daemon, start
from sparkdash.cli import main as command_line
from sparkdash.cli import serve as demo_command
from sparkdash.cli.dashboard import exit_codes
from sparkdash.cli.main import app
from sparkdash.errors import DaemonError
from sparkdash.tui import app as dashboard_app

Run = Callable[..., Any]


def _paths(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from _paths(inner, (*path, name))


COMMANDS = list(_paths(typer.main.get_command(app), ()))


def test_at_most_40_commands() -> None:
    assert sum(not any(other[: len(one)] == one != other for other in COMMANDS) for one in COMMANDS) <= 40


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_examples_and_fits_80_columns(sparkdash: Run, command: tuple[str, ...]) -> None:
    done = sparkdash(*command, "--help")
    assert done.code == 0
    assert "Examples:\n" in done.out
    assert f"  sparkdash {' '.join(command)}".rstrip() in done.out
    assert [line for line in done.out.splitlines() if len(line) > 80] == []
    assert [line for line in done.out.splitlines()[1:] if line.endswith("...")] == []  # a command's own line is whole


HYGIENE = """
import json, sys
sys.argv = ["sparkdash", *sys.argv[1:]]
from sparkdash.cli.main import main
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted({m.partition(".")[0] for m in sys.modules})), file=sys.stderr)
"""
HEAVY = {"textual", "fastapi", "uvicorn", "aiohttp", "litellm", "httpx", "rich", "yaml", "psutil"}


def loaded(*argv: str) -> set[str]:
    """Top-level modules after `sparkdash ARGV` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", HYGIENE, *argv], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(("argv", "forbidden"), [
    (("--help",), HEAVY | {"pydantic"}),
    (("--version",), HEAVY | {"pydantic"}),
    (("use", "--help"), HEAVY),
    (("status",), HEAVY),
    (("why", "a"), HEAVY),
], ids=["help", "version", "help of use", "status", "why"])  # fmt: skip
def test_a_command_loads_only_what_it_needs(argv: tuple[str, ...], forbidden: set[str], nobody: None) -> None:
    assert loaded(*argv) & forbidden == set()


def used_s() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "sparkdash", "--help"], capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_stays_within_its_budget() -> None:
    """`sparkdash --help` uses less than 0.3 s of CPU, the interpreter's own start included; on a busy box one of twenty does."""
    assert any(used_s() < 0.3 for _ in range(20))


def test_the_version_is_the_packages(sparkdash: Run) -> None:
    assert sparkdash("--version").out == f"sparkdash {__version__}\n"


@pytest.mark.parametrize("argv", [("nosuch",), ("use",), ("stop", "a", "--all"), ("logs", "-n", "-1"),
                                  ("pull", "m", "--image-only", "--weights-only")], ids=" ".join)  # fmt: skip
def test_wrong_usage_is_explained_and_ends_with_2(sparkdash: Run, argv: tuple[str, ...]) -> None:
    done = sparkdash(*argv)
    assert done.code == 2
    assert done.out == ""
    assert "Usage: " in done.err
    assert "Error: " in done.err


def test_alone_off_a_terminal_it_prints_the_status(sparkdash: Run, daemon: FakeDaemon) -> None:
    assert sparkdash().out == sparkdash("status").out != ""


def test_a_reader_that_leaves_is_no_error(daemon: FakeDaemon) -> None:
    daemon.log_lines = [f"line {i}" for i in range(50_000)]
    pipeline = f"{sys.executable} -m sparkdash logs a | head -1"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("line 0\n", "")


def test_ctrl_c_ends_cleanly_with_130(daemon: FakeDaemon) -> None:
    words = ["-m", "sparkdash", "status", "--watch"]
    process = Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("daemon")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")


def test_a_settings_file_with_an_error_is_named(sparkdash: Run, own_folders: Any) -> None:
    file = own_folders / "config" / "config.toml"
    file.write_text("prot = 1\n")
    done = sparkdash("status")
    assert done.code == 2
    assert f"{file}: prot: unknown key" in done.err
    assert "Did you mean port? Known keys: host, port" in done.err
    file.write_text("port = \n")
    assert "cannot be read" in sparkdash("serve").err


def test_errors_in_json_mode_are_json_too(sparkdash: Run, nobody: None) -> None:
    done = sparkdash("status", "--json")
    assert done.code == 7
    assert done.json()["error"]["code"] == "daemon_unreachable"
    assert done.json()["error"]["hint"].startswith("Start it with `sparkdash serve`.")
    assert "Hint: Start it with `sparkdash serve`." in done.err


@pytest.mark.parametrize("argv", [("status",), ("stop",), ("cancel",), ("status", "--release", "a"), ("logs",),
                                  ("status", "--watch"), ("stop", "--daemon")], ids=" ".join)  # fmt: skip
def test_without_a_daemon_every_command_says_how_to_start_one(
    sparkdash: Run, argv: tuple[str, ...], nobody: None
) -> None:
    done = sparkdash(*argv)
    assert done.code == 7
    assert done.out == ""
    assert "No sparkdash daemon answers at http://127.0.0.1:" in done.err
    assert "Hint: Start it with `sparkdash serve`." in done.err


def test_what_cannot_be_written_is_told_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "sparkdash", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (5, "Error: The output cannot be written: No space left on device.\n")


@pytest.mark.parametrize(("words", "env", "ran"), [
    ((), {}, ("dashboard", f"{OPENING}\r")), ((), {"TERM": "dumb"}, ("commands", "")),
    (("status",), {}, ("commands", "")), ((), {"_SPARKDASH_COMPLETE": "source_bash"}, ("commands", "")),
], ids=["alone", "a terminal that cannot be drawn on", "a command", "a shell asks for completions"])  # fmt: skip
def test_the_dashboard_says_that_it_opens_and_loads_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], env: dict[str, str],
    ran: tuple[str, str],
) -> None:  # fmt: skip
    """Commands that the script runs, with what it had said before."""
    found: list[tuple[str, str]] = []
    as_terminal(monkeypatch)
    for name, value in ({"TERM": "xterm"} | env).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(command_line, "main", lambda: found.append(("commands", capsys.readouterr().err)))
    monkeypatch.setattr(dashboard, "open_dashboard", lambda: found.append(("dashboard", capsys.readouterr().err)))
    monkeypatch.setattr(sys, "argv", ["sparkdash", *words])
    start.main()
    assert found == [ran]


def test_without_a_dashboard_the_status_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    as_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    asked: list[str] = []
    monkeypatch.setattr("sparkdash.cli.status.status", lambda: asked.append("status"))
    main.home()
    assert asked == ["status"]


def test_a_failure_exits_with_its_own_code_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, exit_codes():
        raise DaemonError("Nothing answers.", code="no_daemon", hint="Start it.")
    told = capsys.readouterr().err
    assert left.value.code == DaemonError("", code="no_daemon").exit_code
    assert "Nothing answers." in told
    assert "Start it." in told


def test_the_first_words_are_erased_before_the_dashboard_takes_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(dashboard_app.asyncio, "run", lambda live: live.close())
    dashboard_app.run_dashboard()
    assert capsys.readouterr().err == "\x1b[K"


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_the_demo_says_what_it_starts_before_it_starts_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch)
    seen: list[str] = []

    def run(*_: Any, **__: Any) -> int:
        seen.append(capsys.readouterr().err)
        return 0

    monkeypatch.setattr(demo_program, "run_demo", run)
    with pytest.raises(demo_command.typer.Exit):
        demo_command.demo()
    assert seen == ["Starting a simulated box and its daemon; the dashboard opens in some seconds.\r"]


def test_the_dashboard_says_that_it_opens_before_a_daemon_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch)

    def start() -> None:
        raise InterruptedError(capsys.readouterr().err)

    monkeypatch.setattr(running_daemon, "start_daemon_if_needed", start)
    with pytest.raises(InterruptedError, match="Opening the dashboard"):
        main.home()
