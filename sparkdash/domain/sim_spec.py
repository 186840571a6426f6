"""Behaviour of the simulated engine, as a profile declares it.

Pure.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparkdash.domain.base import Frozen


class SimSpeed(Frozen):
    """Decode and prefill speed of the simulated engine at one context length (tokens)."""

    context: int = Field(ge=0)
    decode_tok_s: float = Field(gt=0)
    prefill_tok_s: float = Field(gt=0)


class SimSpec(Frozen):
    """Behaviour of the simulated engine. Invented for rehearsal; nothing is a measurement."""

    load_s: float = Field(default=8.0, ge=0)
    speeds: tuple[SimSpeed, ...] = (SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=2000),)
    acceptance: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Chance of accepting the draft token at each position, given that the earlier ones were accepted."""
    speculation: str | None = None
    """Speculation that is imitated, as lists show it: "eagle3 k=1"; None: read from vLLM's arguments."""
    reasoning_tokens: int = Field(default=0, ge=0)
    """Number of leading reasoning tokens in a chat's answer."""
    memory_gib: float = Field(default=20.0, ge=0)
    kv_tokens: int = Field(default=262144, gt=0)
    time_scale: float = Field(default=1.0, gt=0)
    """Factor by which everything runs faster; for tests."""
    fault: str | None = None
    """Name of a fault (sparkdash.sim.engine.faults)."""
    fault_after_s: float | None = Field(default=None, ge=0)
    """Serving time until the fault begins; not for faults of the start."""
    fault_after_tokens: int | None = Field(default=None, ge=1)
    """Token of an answer with which the fault begins; not for faults of the start."""
