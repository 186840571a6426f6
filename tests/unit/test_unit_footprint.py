"""From single loads to one figure, and from it to a need."""

from __future__ import annotations

from sparkdash.domain.memory import LEARNED_FROM, Basis, Footprint, Measure, Weighing, learn_footprint, learned_need
from sparkdash.units import GIB

DAY = 1_795_132_800.0
"""2026-11-20, midnight UTC."""


def seen(gib: int, **facts: object) -> Weighing:
    given = {"id": str(gib), "at": DAY, "measure": Measure.PROCESSES, "steady_bytes": gib * GIB}
    return Weighing.model_validate({**given, "peak_bytes": (gib + 2) * GIB, **facts})


def test_nothing_is_learned_from_nothing() -> None:
    """No load, or only such as do not count."""
    assert learn_footprint([]) is None
    assert learn_footprint([seen(10, spoilt="another engine came"), seen(10, steady_bytes=None, measure=None)]) is None


def test_one_outlier_moves_the_peak_and_not_what_is_held() -> None:
    """The median for what is held; for peaks the worst of those remembered."""
    found = learn_footprint([seen(60), seen(61), seen(100)])
    assert found is not None
    assert (found.steady_bytes, found.peak_bytes, found.loads) == (61 * GIB, 102 * GIB, 3)
    later = learn_footprint([seen(100), *[seen(60)] * LEARNED_FROM])
    assert later is not None
    assert (later.steady_bytes, later.peak_bytes, later.loads) == (60 * GIB, 62 * GIB, LEARNED_FROM)


def test_the_need_tells_where_its_figure_comes_from() -> None:
    """Held; the peak beside it."""
    learned = learned_need(
        Footprint(steady_bytes=60 * GIB, peak_bytes=70 * GIB, loads=3, at=DAY, measure=Measure.PROCESSES)
    )
    assert learned.basis is Basis.LEARNED
    assert (learned.total_bytes, learned.room_bytes) == (60 * GIB, 70 * GIB)
    assert [(t.name, t.bytes, t.source) for t in learned.terms] == [
        ("steady", 60 * GIB, "median of 3 loads on this box, 2026-11-20, by its own processes"),
    ]


def test_a_need_from_one_load_says_so() -> None:
    """No median of one."""
    learned = learned_need(Footprint(steady_bytes=60 * GIB, loads=1, at=DAY, measure=Measure.AVAILABLE))
    assert [t.source for t in learned.terms] == ["1 load on this box, 2026-11-20, by MemAvailable"]
    assert (learned.total_bytes, learned.room_bytes) == (60 * GIB, 60 * GIB)
