"""Audit: one line for each change through /api."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sparkdash.gateway.http.exchange import Exchange
from sparkdash.redaction import is_secret_flag, masked_addresses, masked_values

BODY_LIMIT = 2048
"""Bytes of a body that is kept; control requests name a profile and little else."""
SECRET = "token"  # noqa: S105 - the key's name


def note_of(
    exchange: Exchange, body: bytes, keep: Callable[[Mapping[str, object]], object], at: float
) -> Callable[[int], Awaitable[None]]:
    """Return a function that keeps a line about the request with its answer's status, in a thread.

    Renewals of an exclusive lease are left out: they come every few seconds.
    """
    head, said, client = exchange.head, _said(body), exchange.ends()[0]
    entry = {
        "at": round(at, 3),
        "who": "socket" if head.unix else f"key {exchange.key.name}" if exchange.key else "anyone",
        "from": client[0] if client else None,
        "did": f"{head.method} {head.path}",
        "said": _shown({key: value for key, value in said.items() if key != SECRET}),
    }

    async def note(status: int) -> None:
        if not (head.path == "/api/lease" and said.get(SECRET) and status == 200):
            await asyncio.to_thread(keep, {**entry, "status": status})

    return note


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in masked_values(value, is_secret_flag).items()}
    if isinstance(value, list):
        return list(map(_shown, value))
    return masked_addresses(value) if isinstance(value, str) else value


def _said(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body) if len(body) <= BODY_LIMIT else None
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}
