"""Modules that may be loaded where, seen from a fresh interpreter, and libraries that are declared."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import sparkdash
from sparkdash.client import launch

ROOT = Path(sparkdash.__file__).parents[1]
HEAVY = {"textual", "fastapi", "aiohttp", "uvicorn", "huggingface_hub"}


def loaded(code: str, *, whole: bool = False) -> set[str]:
    """Modules that a fresh interpreter holds after `code`; unless `whole`, those of the top level."""
    names = "m" if whole else "m.split('.')[0]"
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted({names} for m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


HELP = """
import contextlib, io
sys.argv = ["sparkdash", "--help"]
from sparkdash.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
    main()
assert "Usage" in out.getvalue()
"""


FIRST_FRAME = """
import asyncio
import sparkdash.cli.start, sparkdash.client.launch
from sparkdash.cli.dashboard import this_box
from sparkdash.client import address
from sparkdash.tui.app import SparkdashApp

SparkdashApp._begin = lambda app: app.exit()
def connect():
    from sparkdash.tui.daemon_client import DaemonClient
    return DaemonClient(url)
url = "http://127.0.0.1:9"
asyncio.run(SparkdashApp(connect, address.at_url(url), box=this_box).run_async(headless=True))
"""
NOT_YET = {
    "typer", "click", "httpx", "yaml", "sparkdash.api.control", "sparkdash.api.answers", "sparkdash.client.client",
    "sparkdash.settings", "sparkdash.catalog", "sparkdash.discovery", "sparkdash.bench", "sparkdash.host",
    "sparkdash.cli.main", "sparkdash.cli.setup", "sparkdash.cli.use", "sparkdash.engines", "sparkdash.domain.history",
    "pydantic.plugin._loader",  # loaded when the first validator is built
    *(f"sparkdash.tui.screens.{page}" for page in ["profiles", "requests", "compare", "history", "box", "settings", "help"]),
}  # fmt: skip


def test_the_first_frame_of_the_dashboard_waits_for_what_it_shows_alone() -> None:
    """Commands, settings, the other pages and the link to the daemon are loaded behind it, when they are needed."""
    assert not loaded(FIRST_FRAME, whole=True) & NOT_YET


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        pytest.param(HELP, HEAVY | {"pydantic", "httpx", "http", "ssl"}, id="sparkdash --help"),
        pytest.param("import sparkdash.tui.app", HEAVY - {"textual"}, id="the TUI"),
        pytest.param(
            "import sparkdash.daemon", {"textual", "huggingface_hub", "prometheus_client", "aiohttp"}, id="the daemon"
        ),
        pytest.param(
            "import sparkdash.client.client", HEAVY | {"httpx", "asyncio"}, id="the one-shot commands' client"
        ),
        pytest.param("import sparkdash.sim.__main__", HEAVY | {"httpx"}, id="the simulated engine"),
    ],
)
def test_heavy_libraries_load_only_where_they_are_used(code: str, forbidden: set[str]) -> None:
    """A command that prints help must not pay for a terminal interface or a web server."""
    assert not loaded(code) & forbidden


def test_the_contracts_between_rooms_are_kept() -> None:
    """import-linter's contracts, so that `make test` alone tells."""
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_a_child_imports_nothing_from_the_folder_it_is_started_in(tmp_path: Path) -> None:
    """A project's own `json.py` is no part of sparkdash."""
    argv = (*launch.COMMAND, "--help")
    for module in ("json", "sparkdash"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('code of a stranger ran')\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


def test_our_programs_are_started_by_the_safe_interpreter_alone() -> None:
    """`paths.PYTHON`; programs that are read from standard input are isolated by -I."""
    root = ROOT / "sparkdash"
    using = {str(file.relative_to(root)) for file in root.rglob("*.py") if "sys.executable" in file.read_text("utf-8")}
    assert using == {"paths.py", "nodes/boxes.py"}


PARTS = {"pydantic-core": "pydantic"}
"""Distributions whose types are part of another one's interface, and come with it."""


def imported() -> dict[str, str]:
    """Top-level modules that are neither ours nor Python's, each with a file that imports it."""
    found = {}
    for path in (ROOT / "sparkdash").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            found.update({name.partition(".")[0]: str(path) for name in names})
    return {name: path for name, path in found.items() if name != "sparkdash" and name not in sys.stdlib_module_names}


def test_every_library_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_normal(re.split(r"[^\w.-]", line)[0]) for line in project["dependencies"]}
    owners = packages_distributions()
    strays = {
        name: path
        for name, path in imported().items()
        if not declared & {PARTS.get(owner, owner) for owner in map(_normal, owners.get(name, [name]))}
    }
    assert strays == {}


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-")
