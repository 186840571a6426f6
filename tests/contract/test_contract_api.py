"""The table of the control API: the gateway serves each of its rows, and both clients have each as a method."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Call, DocumentCall, Row, Stream
from sparkdash.client.client import AsyncClient, Client
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.app import router

ROOT = Path(__file__).parents[2]
ROWS: dict[str, Row[...]] = {name: row for name, row in vars(ControlApi).items() if isinstance(row, Row)}
ROUTES = {(method, route.path): route for route in router().routes for method in route.methods}  # type: ignore[attr-defined]


def each_row() -> Iterator[Any]:
    for name, row in ROWS.items():
        yield pytest.param(row, ROUTES.get((row.method, row.path)), id=name)


def with_dependencies(found: Dependant) -> Iterator[Dependant]:
    yield found
    for each in found.dependencies:
        yield from with_dependencies(each)


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    """Neither side can add a call that the other does not know."""
    assert set(ROUTES) == {(row.method, row.path) for row in ROWS.values()}
    assert len(ROWS) == len(ROUTES)


@pytest.mark.parametrize(("row", "route"), list(each_row()))
def test_a_route_takes_the_parameters_of_its_row(row: Row[...], route: APIRoute) -> None:
    """In the path and the query those of the request model that the path names or a GET leaves; in the body the model."""
    model: Any = row.request
    found = route.dependant
    in_path = {field.name for field in found.path_params}
    in_query = {field.name for each in with_dependencies(found) for field in each.query_params}
    bodies = [field.field_info.annotation for field in found.body_params]
    if row.method == "POST":
        own = not set(model.model_fields) <= in_path
        assert [body.__name__ for body in bodies] == [model.__name__ if own else "NoParameters"]
        assert not in_query
        assert in_path <= set(model.model_fields)
    else:
        assert in_path | in_query == set(model.model_fields)
        assert not bodies
    assert all(f"{{{name}" in row.path for name in in_path)


@pytest.mark.parametrize(("row", "route"), list(each_row()))
def test_a_route_answers_what_its_row_says(row: Row[...], route: APIRoute) -> None:
    """Model, status and summary; a stream or a document is written by its handler."""
    assert isinstance(row, (Call, Stream))
    assert route.summary == row.summary
    if isinstance(row, Call) and not isinstance(row, DocumentCall):
        assert (route.response_model, route.status_code) == (row.answer, row.status)
    else:
        assert route.response_model is None


@pytest.mark.parametrize("name", list(ROWS))
def test_both_clients_have_every_call_from_the_table(name: str) -> None:
    assert getattr(Client, name) is getattr(AsyncClient, name) is ROWS[name]


def test_mypy_knows_what_each_method_takes_and_answers(tmp_path: Path) -> None:
    """A misspelt name, a wrong type, a cause that is none, an answer that is another: each is an error of its own line."""
    file = tmp_path / "planted.py"
    file.write_text(
        "from sparkdash.client.client import Client\n"
        "def planted(client: Client) -> bytes:\n"
        "    client.plan(nam='a')\n"
        "    client.stop(profile=1)\n"
        "    client.use(profile='a', cause='nobody')\n"
        "    plan: str = client.plan(name='a')\n"
        "    lines: list[str] = [*client.logs(name='a', follow=True)]\n"
        "    return client.run_report(run='a')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path, file],
        capture_output=True, text=True, check=False, timeout=100, cwd=ROOT,
    )  # fmt: skip
    wrong = re.findall(r"planted\.py:(\d+): error", done.stdout)
    assert wrong == ["3", "4", "5", "6"], done.stdout + done.stderr


def test_a_method_refuses_parameters_that_its_call_does_not_have() -> None:
    """Before anything is sent; mypy says the same earlier."""
    with pytest.raises(AdmissionError, match="profil"):
        ControlApi.use.prepare(profil="a")  # type: ignore[call-arg]
    assert inspect.signature(ControlApi.use.request).parameters.keys() == {"profile", "cause"}
