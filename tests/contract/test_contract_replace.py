"""Frozen values change by `replace` alone, and mypy checks its names and types."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparkdash
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.profile import EngineKind

SOURCE = Path(sparkdash.__file__).parent
ENGINE = Engine(profile="a", kind=EngineKind.VLLM, state=EngineState.LOADING, since=1.0, fingerprint="f")


def test_mypy_refuses_an_unknown_field_and_a_wrong_type(tmp_path: Path) -> None:
    """`ready_at` misspelt, a port that is text and a state that is no state: each is an error of its own line."""
    file = tmp_path / "planted.py"
    file.write_text(
        "from sparkdash.domain.engine import Engine, EngineState\n"
        "def planted(engine: Engine) -> Engine:\n"
        "    engine.replace(redy_at=1.0)\n"
        "    engine.replace(port='x')\n"
        "    engine.replace(state='nonsense')\n"
        "    return engine.replace(state=EngineState.READY, port=None, ready_at=1.0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", SOURCE.parent / "pyproject.toml", "--cache-dir", tmp_path, file],
        capture_output=True, text=True, check=False, timeout=100, cwd=SOURCE.parent,
    )  # fmt: skip
    wrong = re.findall(r"planted\.py:(\d+): error", done.stdout)
    assert wrong == ["3", "4", "5"], done.stdout + done.stderr


def test_a_name_that_is_no_field_is_refused_at_run_time_too() -> None:
    """Code that mypy does not see (a test, a notebook) gets a TypeError with the name."""
    with pytest.raises(TypeError, match="Engine has no field redy_at"):
        ENGINE.replace(redy_at=1.0)
    assert ENGINE.replace(port=8000) == Engine(**{**dict(ENGINE), "port": 8000})


def test_no_module_copies_a_model_unchecked() -> None:
    """`model_copy(update=…)` stores any name with any value."""
    users = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if ".model_copy(" in file.read_text()}
    assert users == {"domain/base.py"}
