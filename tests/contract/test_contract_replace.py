"""mypy checks names and types of what changes a frozen value, which is `replace` alone, and of the calls of the API, whose table both ends share."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import sparkdash
from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Call, DocumentCall, Row
from sparkdash.client.client import AsyncClient, Client
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.profile import EngineKind
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.app import HANDLERS

SOURCE = Path(sparkdash.__file__).parent
ENGINE = Engine(profile="a", kind=EngineKind.VLLM, state=EngineState.LOADING, since=1.0, fingerprint="f")


PLANTED = """\
from sparkdash.client.client import Client
from sparkdash.domain.engine import Engine, EngineState
def planted(client: Client, engine: Engine) -> bytes:
    client.plan(nam='a')  # wrong
    client.stop(profile=1)  # wrong
    client.use(profile='a', cause='nobody')  # wrong
    plan: str = client.plan(name='a')  # wrong
    lines: list[str] = [*client.logs(name='a', follow=True)]
    engine.replace(redy_at=1.0)  # wrong
    engine.replace(port='x')  # wrong
    engine.replace(state='nonsense')  # wrong
    engine.replace(state=EngineState.READY, port=None, ready_at=1.0)
    return client.run_report(run='a')
"""


def test_mypy_knows_the_calls_of_the_api_and_the_fields_of_a_value(tmp_path: Path) -> None:
    """A misspelt name, a wrong type, a cause that is none, an answer that is another: each is an error of its own line."""
    file = tmp_path / "planted.py"
    file.write_text(PLANTED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", SOURCE.parent / "pyproject.toml", "--cache-dir", tmp_path, file],
        capture_output=True, text=True, check=False, timeout=100, cwd=SOURCE.parent,
    )  # fmt: skip
    found = [int(number) for number in re.findall(r"planted\.py:(\d+): error", done.stdout)]
    wrong = [number for number, line in enumerate(PLANTED.splitlines(), 1) if line.endswith("# wrong")]
    assert found == wrong, done.stdout + done.stderr


def test_a_name_that_is_no_field_is_refused_at_run_time_too() -> None:
    """Code that mypy does not see (a test, a notebook) gets a TypeError with the name."""
    with pytest.raises(TypeError, match="Engine has no field redy_at"):
        ENGINE.replace(redy_at=1.0)
    assert ENGINE.replace(port=8000) == Engine(**{**dict(ENGINE), "port": 8000})


def test_no_module_copies_a_model_unchecked() -> None:
    """`model_copy(update=…)` stores any name with any value."""
    users = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if ".model_copy(" in file.read_text()}
    assert users == {"domain/base.py"}


ROOT = Path(__file__).parents[2]
ROWS: dict[str, Row[...]] = {name: row for name, row in vars(ControlApi).items() if isinstance(row, Row)}


def test_every_row_has_a_handler_that_takes_what_the_row_asks_for_and_answers_what_it_says() -> None:
    """A document is bytes; a stream, and the feed, are written by their handlers."""
    assert set(HANDLERS) == set(ROWS.values())
    for row, handler in HANDLERS.items():
        hints = get_type_hints(handler)
        taken = [hint for name, hint in hints.items() if name not in ("call", "return")]
        assert taken == [row.model]
        if isinstance(row, Call):
            assert hints["return"] is (bytes if isinstance(row, DocumentCall) else row.answer)
        assert row.in_path <= row.model.model_fields.keys()
        assert row.method != "POST" or row.in_path in (frozenset(), row.model.model_fields.keys())


@pytest.mark.parametrize("name", list(ROWS))
def test_both_clients_have_every_call_from_the_table(name: str) -> None:
    assert getattr(Client, name) is getattr(AsyncClient, name) is ROWS[name]


def test_a_method_refuses_parameters_that_its_call_does_not_have() -> None:
    """Before anything is sent; mypy says the same earlier."""
    with pytest.raises(AdmissionError, match="profil"):
        ControlApi.use.prepare(profil="a")  # type: ignore[call-arg]
    assert inspect.signature(ControlApi.use.request).parameters.keys() == {"profile", "cause"}
