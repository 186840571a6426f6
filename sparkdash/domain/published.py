"""Published performance figures of a profile.

Pure.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparkdash.domain.base import Frozen


class Published(Frozen):
    """A published figure for a profile. Rates are per second; None was not published."""

    workload: str
    source: str
    """Name of the document with the figure."""
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    e2e_tok_s: float | None = None
    """Completion tokens divided by the whole time of the request, prefill included."""
    aggregate_tok_s: float | None = None
    tok_s: float | None = None
    """Rate without a stated definition; never compared with the others."""
    upto: float | None = None
    """Upper end of a published range."""
    kv_tokens: int | None = Field(default=None, ge=0)
    """Tokens that the KV cache holds."""
    prefix_hit_rate: Annotated[float | None, Field(ge=0, le=1)] = None
    math_score: Annotated[float | None, Field(ge=0, le=1)] = None
    start_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds from the start to the first answer."""
    link_gbit_s: float | None = None
    """Bandwidth between two boxes, in Gb/s."""
    copy_mb_s: float | None = None
    """Rate of copying weights to the other box, in MB/s."""
    note: str | None = None
