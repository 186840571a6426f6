"""The pair of the first hour (docs/models.md): both engines run side by side on one Spark, by the admission's figures."""

from __future__ import annotations

import pytest

from sparkdash import catalog
from sparkdash.domain.memory import Basis
from sparkdash.domain.node import LOCAL
from sparkdash.engines.estimate import estimate_launch, sizes_by_free_memory
from sparkdash.paths import shipped_profiles
from sparkdash.rules.memory import BOX_BYTES
from sparkdash.settings import Settings
from sparkdash.supervisor.decide.fit import BoxMemory, Occupant, choose
from sparkdash.units import GIB

PROFILES = catalog.load_catalog([shipped_profiles()]).profiles
STRONG, QUICK = "gpt-oss-120b/gguf", "gpt-oss-20b"
OTHERS = 9 * GIB
"""Taken for a desktop and other programs."""


def engine(name: str) -> Occupant:
    return Occupant(name, estimate_launch(PROFILES[name], {}, BOX_BYTES))


@pytest.mark.parametrize(("first", "second"), [(STRONG, QUICK), (QUICK, STRONG)])
def test_the_second_of_the_pair_comes_and_nobody_leaves(first: str, second: str) -> None:
    """Whichever runs already; the reserve of the default settings stays free."""
    resident, comer = engine(first), engine(second)
    assert (resident.need.basis, comer.need.basis) == (Basis.DECLARED, Basis.DECLARED)
    available = BOX_BYTES - OTHERS - (resident.need.total_bytes or 0)
    reserve = int(Settings().reserve_gib * GIB)
    box = BoxMemory(total=BOX_BYTES, available=available, reserve=reserve)
    choice = choose(comer, [resident], {LOCAL: box}, person=False)
    assert (choice.fits, choice.names) == (True, ())


def test_both_of_the_pair_load_at_the_same_time() -> None:
    """Neither sizes itself by what is free, so neither has to wait for the other's load."""
    assert not any(sizes_by_free_memory(PROFILES[name]) for name in (STRONG, QUICK))


def test_the_pair_is_one_image_and_each_has_a_published_rate() -> None:
    """One pull for both; the quick one is the quicker."""
    strong, quick = PROFILES[STRONG], PROFILES[QUICK]
    assert strong.image == quick.image
    rates = [max(row.decode_tok_s or 0 for row in one.published) for one in (strong, quick)]
    assert 0 < rates[0] < rates[1]
