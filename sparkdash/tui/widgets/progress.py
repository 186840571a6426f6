"""A swap under way: seven words with the present one lit, its progress, its time, its log's last line, who waits.

Owns: those rows. Rule: an estimate is only shown where such a swap was seen before, with the spread of those seen.
"""

from __future__ import annotations

from sparkdash.domain.swap import Swap, SwapOutcome, SwapPhase
from sparkdash.tui.ink import EMPTY, Ink, Line, clip, ends, join, say
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets import words
from sparkdash.tui.widgets.spark import meter
from sparkdash.units import duration

PHASES = tuple(SwapPhase)
METER = 40


def swap_title(swap: Swap) -> Line:
    """What comes and what leaves."""
    leaves = ", ".join(swap.evict)
    if swap.target is None:
        return say("stop ", Ink.PLAIN) + say(leaves, Ink.STRONG)
    after = say(" after ", Ink.DIM) + say(leaves, Ink.PLAIN) if leaves else EMPTY
    return say("swap to ", Ink.PLAIN) + say(swap.target, Ink.STRONG) + after


def swap_rows(view: View, swap: Swap, width: int) -> list[Line]:
    """Five rows of at most `width` cells."""
    rows = [phase_line(swap), _bar(swap, view, width), _times(swap, view), _log(swap), _waiting(swap, view, width)]
    return [clip(row, width) for row in rows]


def phase_line(swap: Swap) -> Line:
    """`✓ drain ✓ stop ✓ reclaim ▶ preflight · create · load · warm`; what did not run is passed over."""
    now = PHASES.index(swap.phase)
    return join((_phase(swap, phase, PHASES.index(phase) - now) for phase in PHASES), say("  "))


def _phase(swap: Swap, phase: SwapPhase, place: int) -> Line:
    if place < 0:
        ran = phase in swap.stage_s
        return say("✓ " if ran else "  ", Ink.GOOD) + say(phase, Ink.PLAIN if ran else Ink.FAINT)
    if place > 0:
        return say(f"· {phase}", Ink.DIM)
    share = swap.progress.fraction if swap.progress and phase is SwapPhase.LOAD else None
    return say(f"▶ {phase}" + (f" {share * 100:.0f} %" if share is not None else ""), Ink.STRONG)


def _bar(swap: Swap, view: View, width: int) -> Line:
    cells = min(METER, width // 2)
    stage = say(swap.progress.stage, Ink.PLAIN) if swap.progress else EMPTY
    share = _share(swap, view)
    if share is None:
        return say("─" * cells, Ink.FAINT) + say("  ") + (stage or say("no estimate yet", Ink.DIM))
    done, rest = meter(share, cells)
    return say(done, Ink.GOOD) + say(rest, Ink.FAINT) + say(f" {share * 100:3.0f} %  ", Ink.STRONG) + stage


def _share(swap: Swap, view: View) -> float | None:
    """By time where it was learned, never quite full; else the log's own word about this stage."""
    if swap.expected_s:
        return min((view.now - swap.started_at) / swap.expected_s, 0.99)
    return swap.progress.fraction if swap.progress else None


def _times(swap: Swap, view: View) -> Line:
    elapsed = say("elapsed ", Ink.DIM) + say(words.age(view.now - swap.started_at), Ink.STRONG)
    left = words.remaining_s(swap, view.now)
    if swap.expected_s is None:
        return elapsed + say("   first time here: no estimate", Ink.DIM)
    eta = (
        say("   left ", Ink.DIM) + say(f"~{words.age(left)}", Ink.STRONG)
        if left is not None
        else say("   longer than usual", Ink.WARN)
    )
    usual = say(f"   usually {duration(swap.expected_s)}", Ink.DIM)
    return elapsed + eta + usual + _spread(swap, view)


def _spread(swap: Swap, view: View) -> Line:
    seen = [
        past.ended_at - past.started_at
        for past in (view.snapshot.swaps if view.snapshot else ())
        if past.target == swap.target and past.outcome is SwapOutcome.DONE and past.ended_at is not None
    ]
    if len(seen) < 2:
        return EMPTY
    return say(f" ({duration(min(seen))} to {duration(max(seen))}, n {len(seen)})", Ink.DIM)


def _log(swap: Swap) -> Line:
    detail = swap.progress.detail if swap.progress else ""
    return say("log ", Ink.DIM) + (say(detail, Ink.PLAIN) if detail else say("-", Ink.DIM))


def _waiting(swap: Swap, view: View, width: int) -> Line:
    requests = view.snapshot.requests.values() if view.snapshot else ()
    names = [
        f"{request.client} {words.age(view.now - request.started_at)}"
        for request in requests
        if words.waits_for(request, swap)
    ]
    count = max(swap.waiting, len(names))
    who = (
        f"{count} wait{'s' if count == 1 else ''}: {', '.join(names)}"
        if names
        else f"{count} wait"
        if count
        else "nobody waits"
    )
    cause = say(f"{words.CAUSES[swap.cause]}  ", Ink.DIM)
    return ends(
        say(who, Ink.PLAIN if count else Ink.DIM), cause + say("x", Ink.STRONG) + say(" cancels", Ink.DIM), width
    )
