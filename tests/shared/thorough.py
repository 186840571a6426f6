"""How often a property, a random history or a simulation is tried: as often as written in `make full`, a share elsewhere."""

import os

FULL = "SPARKDASH_FULL" in os.environ
SHARE = 5
"""Divisor of `make test`."""


def tries(number: int) -> int:
    """Return `number` in a full run and a fifth of it elsewhere, at least one."""
    return number if FULL else max(number // SHARE, 1)
