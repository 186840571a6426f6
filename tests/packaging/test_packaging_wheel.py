"""Wheel and sdist, installed as a user does: into an empty environment, without the checkout."""

import json
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkdash import __version__

pytestmark = pytest.mark.wheels

CHECKOUT = Path(__file__).parents[2]
WHEELS = Path(__file__).with_name(".wheels")
DEADLINE_S = 100


@dataclass(frozen=True)
class Installed:
    """Empty environment with the wheel in it, and the two archives."""

    environment: Path
    wheel: Path
    sdist: Path
    home: Path

    def variables(self) -> dict[str, str]:
        """Variables of a new user's shell: nothing of the checkout, its tools, or another user's settings."""
        return {"HOME": str(self.home), "PATH": f"{self.environment}/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self.variables() | variables, cwd=self.home,
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip


def _build(source: Path, folder: Path, *targets: str) -> list[Path]:
    """Build with the backend that pyproject.toml names."""
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(
        [*words, *(word for one in targets for word in ("-t", one))],
        cwd=source, check=True, capture_output=True, timeout=DEADLINE_S,
    )  # fmt: skip
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """`pip install dist/*.whl` into an empty environment; pip takes the lock file's wheels and asks no index."""
    assert WHEELS.is_dir(), "make test fetches the wheels; alone: sh tests/packaging/setup.sh .venv/bin/python"
    folder = tmp_path_factory.mktemp("packaging")
    wheel, sdist = _build(CHECKOUT, folder / "dist", "wheel", "sdist")
    environment, home = folder / "environment", folder / "home"
    home.mkdir()
    made = Installed(environment, wheel, sdist, home)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=DEADLINE_S)
    pip = (f"{environment}/bin/python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile")
    done = made.run(*pip, "--no-index", "--find-links", str(WHEELS.resolve()), str(wheel))
    assert done.returncode == 0, done.stderr
    return made


def test_the_installed_program_knows_its_version(installed: Installed) -> None:
    assert installed.run("sparkdash", "--version").stdout == f"sparkdash {__version__}\n"


def test_the_shipped_profiles_are_found_with_their_containerfiles(installed: Installed) -> None:
    listed = json.loads(installed.run("sparkdash", "profiles", "--json").stdout)
    assert listed["problems"] == []
    assert "gpt-oss-120b" in {one["name"] for one in listed["profiles"]}
    shown = installed.run("sparkdash", "profiles", "show", "gpt-oss-120b")
    assert (shown.returncode, str(installed.environment) in shown.stdout.replace("\n", "")) == (0, True)
    beside = {path.relative_to(CHECKOUT / "profiles") for path in (CHECKOUT / "profiles").rglob("*") if path.is_file()}
    (bundled,) = installed.environment.glob("lib/python*/site-packages/sparkdash/_profiles")
    assert {path.relative_to(bundled) for path in bundled.rglob("*") if path.is_file()} == beside


@pytest.mark.full
def test_the_demo_serves_and_ends_cleanly(installed: Installed) -> None:
    words = [f"{installed.environment}/bin/sparkdash", "demo", "--headless", "--speed", "20"]
    with subprocess.Popen(
        words, env=installed.variables(), cwd=installed.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            found = re.search(r"http://\S+?(?=/v1)", next(line for line in child.stdout if "serves" in line))
            assert found is not None
            with urllib.request.urlopen(f"{found[0]}/v1/models", timeout=DEADLINE_S) as answer:
                assert json.load(answer)["data"]
        finally:
            child.send_signal(signal.SIGTERM)
        child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 0


def test_a_shell_can_complete_commands(installed: Installed) -> None:
    words = {"COMP_WORDS": "sparkdash profi", "COMP_CWORD": "1", "_SPARKDASH_COMPLETE": "complete_bash"}
    assert installed.run("sparkdash", **words).stdout.split() == ["profiles"]


@pytest.mark.full
def test_the_sdist_builds_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    with tarfile.open(installed.sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    (again,) = _build(source, tmp_path / "dist", "wheel")
    assert _contents(again) == _contents(installed.wheel)


def _contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


def test_the_archives_hold_what_belongs_there_and_nothing_of_a_checkout(installed: Installed) -> None:
    top = {name.split("/")[0] for name in _contents(installed.wheel)}
    stem = f"sparkdash-{__version__}"
    assert top == {"sparkdash", f"{stem}.dist-info"}
    with tarfile.open(installed.sdist) as archive:
        names = {name.partition("/")[2].split("/")[0] for name in archive.getnames()}
    assert {"sparkdash", "profiles", "tests", "docs", "requirements", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert not names & {".venv", ".git", ".cache", "dist"}


def test_nothing_that_is_needed_is_missing_after_the_install(installed: Installed) -> None:
    """pip's own judgement of what the metadata asks for, and every module can be found by its imports."""
    assert installed.run(f"{installed.environment}/bin/python", "-m", "pip", "check").returncode == 0
    script = (
        "import importlib, pkgutil, sparkdash\n"
        "skip = ('translate.', '__main__', 'bench.report', 'web.server')\n"
        "for one in pkgutil.walk_packages(sparkdash.__path__, 'sparkdash.'):\n"
        "    if not any(word in one.name for word in skip):\n"
        "        importlib.import_module(one.name)\n"
    )
    done = installed.run(f"{installed.environment}/bin/python", "-c", script)
    assert done.returncode == 0, done.stderr
