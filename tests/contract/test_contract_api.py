"""The table of the control API: the gateway serves each of its rows, and both clients have each as a method."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_type_hints

import pytest

from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Call, DocumentCall, Row
from sparkdash.client.client import AsyncClient, Client
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.app import HANDLERS

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
