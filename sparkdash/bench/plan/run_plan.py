"""Planning of a run: its arms, the order of launches and cells, its remaining work and time."""

import hashlib
import math
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sparkdash import __version__
from sparkdash.bench.judge.arm_comparison import fit_cell
from sparkdash.bench.plan.suites import Suite
from sparkdash.bench.results import Gap, Results
from sparkdash.bench.run import Arm, CellKey, LaunchSlot, Mode, PlannedCell, Run
from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError

HOT_SHARE = 4
"""Every fourth cell counts as hot; hot cells are kept apart."""


PASSES = {Mode.SCREEN: 1, Mode.STANDARD: 3, Mode.CAREFUL: 4}

PAIR_ORDERS: Mapping[Mode, Mapping[str, int]] = {
    Mode.STANDARD: {"AABBAB": 9, "ABBABA": 6, "ABBBAA": 4, "ABBAAB": 1},
    Mode.CAREFUL: {"ABABBAAB": 4, "AABBBABA": 3, "ABABAABB": 3},
}
"""Orders of two arms and how often each is drawn, forwards or backwards, with A or B first. The shares are those at
which drifts are claimed in some 5 % of tables at most, with the most power (docs/evidence.md, whole tables).
"""

TRIES = 10
"""Shuffles of three or more arms, of which the one that a wave of the box resembles least is taken."""

_PHASES = 4
_NEGLIGIBLE = 1e-9


def launch_order(arms: Sequence[str], mode: Mode, draw: str) -> tuple[LaunchSlot, ...]:
    """Return the launches of a run, drawn by `draw`, such as the run's id. A block is the n-th launch of each arm.

    screen: the arms as given. standard: three launches of each arm. careful: four. The linear part of a drift is fitted
    and removed (judge/arm_comparison.py); what remains resembles the drawn order in few draws.
    Raises ValueError: an arm is named twice, or there is none.
    """
    if not arms or len(set(arms)) < len(arms):
        raise ValueError(f"arms must be named once each: {', '.join(arms) or 'none given'}")
    seen: Counter[str] = Counter()
    slots = []
    for arm in _drawn(arms, mode, draw):
        slots.append(LaunchSlot(arm=arm, block=seen[arm]))
        seen[arm] += 1
    return tuple(slots)


def _drawn(arms: Sequence[str], mode: Mode, draw: str) -> Sequence[str]:
    if len(arms) == 1 or mode is Mode.SCREEN:
        return [*arms] * PASSES[mode]
    if len(arms) == 2:
        return _pair_order(arms, PAIR_ORDERS[mode], draw)
    return min(_shuffles([*arms] * PASSES[mode], draw), key=lambda order: _worst_wave(order, arms[0]))


def _pair_order(arms: Sequence[str], orders: Mapping[str, int], draw: str) -> Sequence[str]:
    listed = [order for order, share in orders.items() for _ in range(share)]
    number = int.from_bytes(_digest("pair", draw))
    number, backwards = divmod(number, 2)
    number, swapped = divmod(number, 2)
    order = listed[number % len(listed)][:: -1 if backwards else 1]
    return [arms[(letter == "B") != bool(swapped)] for letter in order]


def _shuffles(slots: Sequence[str], draw: str) -> Iterator[Sequence[str]]:
    for attempt in range(TRIES):
        ranked = sorted(range(len(slots)), key=lambda at: _digest("shuffle", attempt, at, draw))
        yield [slots[at] for at in ranked]


def _worst_wave(order: Sequence[str], base: str) -> float:
    """Return the largest t that a wave of the box, and nothing else, gives any arm against the baseline."""
    count = len(order)
    return max(
        _largest_t(
            order, base, [math.sin(math.pi * (halves * place / count + phase / _PHASES)) for place in range(count)]
        )
        for halves in range(1, count + 1)
        for phase in range(_PHASES)
    )


def _largest_t(order: Sequence[str], base: str, levels: Sequence[float]) -> float:
    values: dict[str, dict[int, dict[str, float]]] = {}
    for place, arm in enumerate(order):
        values.setdefault(arm, {})[place] = {"": math.exp(levels[place])}
    fit = fit_cell(values)
    found = (fit.contrast(arm, base) for arm in values if arm != base)
    return max(abs(one.log_ratio) / max(one.se, _NEGLIGIBLE) for one in found if one is not None)


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("|".join(("sparkdash-launches/v1", *map(str, parts))).encode()).digest()


def cell_order(cells: Sequence[PlannedCell], seed: int, block: int) -> tuple[PlannedCell, ...]:
    """Return the cells of one launch: shuffled by seed and block, hot ones apart; equal for all arms of the block.

    Hot are the cells with the most tokens in flight; between two of them the box may cool down.
    """
    shuffled = sorted(cells, key=lambda cell: _rank(cell, seed, block))
    hottest = sorted(
        shuffled, key=lambda cell: cell.key.concurrency * (cell.key.context + cell.key.output), reverse=True
    )[: len(shuffled) // HOT_SHARE]
    hot = [cell for cell in shuffled if cell in hottest]
    cool = [cell for cell in shuffled if cell not in hottest]
    mixed: list[PlannedCell] = []
    for number, cell in enumerate(hot):
        mixed += cool[len(cool) * number // len(hot) : len(cool) * (number + 1) // len(hot)]
        mixed.append(cell)
    return tuple(mixed) if hot else tuple(cool)


def _rank(cell: PlannedCell, seed: int, block: int) -> bytes:
    return hashlib.sha256(f"sparkdash-order/v1|{seed}|{block}|{cell.key.model_dump_json()}".encode()).digest()


SEED = 1
PREFILL_RATIO = 40.0
"""Cost of a generated token over that of a prompt token, for the progress bar alone; published: 30 to 70."""


class KnownSpeeds(Frozen):
    """Speed of an arm known before measuring. Seconds and tok/s; None: unknown."""

    launch_s: float | None = None
    decode_tok_s: float | None = None
    source: str | None = None
    estimated: bool = False
    """Whether rate or start is an estimate that nobody measured on this profile."""


def arms_of(names: Sequence[str], profiles: Mapping[str, ProfileSummary]) -> tuple[Arm, ...]:
    """Return an arm per profile's exact name. One named twice is compared with itself (A/A).

    Raises AdmissionError: `model_not_found`, or `cannot_run` when none of them can.
    """
    arms: list[Arm] = []
    for name in names:
        found = profiles.get(name)
        if found is None:
            raise AdmissionError(
                f"There is no profile {name!r}.", code="model_not_found", status=404, hint="`sparkdash profiles`."
            )
        arms.append(Arm(name=_unique(name, arms), profile=name, impossible=found.cannot_run))
    if all(arm.impossible for arm in arms):
        first = arms[0]
        raise AdmissionError(f"{first.name} cannot run: {first.impossible}.", code="cannot_run")
    return tuple(arms)


def _unique(name: str, arms: Sequence[Arm]) -> str:
    number = sum(arm.profile == name for arm in arms)
    return f"{name} ({number + 1})" if number else name


def new_run(
    suite: Suite,
    arms: Sequence[Arm],
    mode: Mode,
    *,
    seed: int = SEED,
    reps: int | None = None,
    suite_file: str | None = None,
    **where: Any,
) -> Run:
    """Create a run; arms that cannot run have no launches. `where`: host and simulated of Run."""
    now = datetime.now(UTC)
    able = [arm.name for arm in arms if arm.impossible is None]
    run_id = f"{now:%Y%m%d-%H%M%S}-{suite.suite}-{secrets.token_hex(2)}"
    return Run(
        id=run_id,
        suite=suite.suite,
        suite_version=suite.version,
        suite_hash=suite.hash,
        suite_file=suite_file,
        lengths=suite.lengths,
        arms=tuple(arms),
        baseline=able[0],
        mode=mode,
        seed=seed,
        created_at=now,
        order=launch_order(able, mode, run_id),
        cells=suite.planned(mode, reps),
        reps=reps,
        version=__version__,
        **where,
    )


def is_same_question(run: Run, other: Run) -> bool:
    """Whether `other` measures the same as `run`, in whatever order."""
    return _launches(run) == _launches(other) and all(
        getattr(run, name) == getattr(other, name)
        for name in ("suite_hash", "arms", "mode", "seed", "cells", "target", "baseline")
    )


def _launches(run: Run) -> Counter[str]:
    return Counter(slot.arm for slot in run.order)


def speeds_of(arms: Sequence[Arm], world: Snapshot, launch_s: Mapping[str, float | None]) -> dict[str, KnownSpeeds]:
    """Return the known speed by arm: measured by the daemon, else published."""
    found = {}
    for arm in arms:
        seen = world.figures.get(arm.profile)
        summary = world.profile(arm.profile)
        rate, source = (seen.decode_tok_s, "seen here") if seen else (None, None)
        if rate is None and summary is not None and summary.published_decode_tok_s is not None:
            rate, source = summary.published_decode_tok_s, "published"
        found[arm.name] = KnownSpeeds(
            launch_s=launch_s.get(arm.profile), decode_tok_s=rate, source=source if rate else None,
            estimated=source == "published",
        )  # fmt: skip
    return found


def token_cost(key: CellKey, reps: int) -> float:
    """Return the cost of a cell's repetitions in sequential generated tokens. The warm-up counts as one more."""
    tokens = key.output + key.context / PREFILL_RATIO * key.concurrency
    return (reps + 1) * tokens * math.sqrt(key.concurrency)


def token_cost_left(gaps: Sequence[Gap]) -> float:
    return sum(token_cost(gap.cell, len(gap.reps)) for gap in gaps)


def expected_s(gaps: Sequence[Gap], speeds: Mapping[str, KnownSpeeds]) -> float | None:
    """Return the seconds that the gaps will take; None while the speed or start time of an arm is unknown."""
    total = 0.0
    for arm in {gap.arm for gap in gaps}:
        mine = [gap for gap in gaps if gap.arm == arm]
        known = speeds.get(arm, KnownSpeeds())
        if known.decode_tok_s is None or known.launch_s is None:
            return None
        total += token_cost_left(mine) / known.decode_tok_s + known.launch_s * len({gap.launch for gap in mine})
    return total


def launches_left(results: Results) -> tuple[int, ...]:
    return tuple(sorted({gap.launch for gap in results.gaps()}))
