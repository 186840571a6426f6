"""Lines of a swap under way: phases, progress bar, times, last log line, waiting requests.

Rule: the bar spans the whole swap and never falls; the stage's own share stands beside it. Pure.
"""

from collections.abc import Sequence

from sparkdash.domain import phrases
from sparkdash.domain.swap import Plan, Swap, SwapPhase, phases_of
from sparkdash.tui.lines import words
from sparkdash.tui.lines.charts import meter
from sparkdash.tui.mirror import View
from sparkdash.tui.text import EMPTY, Line, Style, clip, join, justify, length, styled
from sparkdash.units import counted, duration, gib


def plan_lines(plan: Plan, boxes: str = "") -> list[Line]:
    """Format a plan in two lines: whether it fits, and on which boxes; what leaves, and how long it takes."""
    where = styled(f"on {boxes}", Style.PLAIN) if boxes else EMPTY
    dots = styled(" · ", Style.FAINT)
    if plan.expected_s == 0 and not plan.evict:
        return [join([styled("runs now", Style.GOOD), where], dots)]
    verdict = {
        True: styled("fits: yes", Style.GOOD),
        False: styled("fits: no", Style.BAD),
        None: styled("fits: not sure", Style.DIM),
    }[plan.fits]
    if plan.fits is False and plan.available_bytes is None:
        return [join([verdict, styled(plan.verdict, Style.PLAIN)], dots)]
    each = " on each" if len(plan.nodes) > 1 else ""
    need = styled(f"needs {words.needed_memory(plan)} of {gib(plan.available_bytes, 0)}{each}", Style.PLAIN)
    leaves = styled(_leaves(plan), Style.PLAIN)
    load = "load time not known yet" if plan.expected_s is None else f"load ~{duration(plan.expected_s)}"
    return [join([verdict, need, where], dots), join([leaves, styled(load, Style.DIM)], dots)]


def _leaves(plan: Plan) -> str:
    others = [name for name in plan.evict if name != plan.profile]
    stay = "beside what runs" if plan.beside else "nothing has to leave"
    after = f"after {', '.join(others)} leaves" if others else stay
    if plan.profile not in plan.evict:
        return after
    return "its file was edited: the engine is restarted" + (f" {after}" if others else "")


METER = 40
GAP = styled("   ")


def swap_title(swap: Swap, beside: Sequence[Swap] = (), boxes: str = "") -> Line:
    leaves = ", ".join(swap.evict)
    more = styled(", and ", Style.DIM) + styled(", ".join(map(goal, beside)), Style.PLAIN) if beside else EMPTY
    if swap.target is None:
        return styled("stop ", Style.PLAIN) + styled(leaves, Style.STRONG) + more
    after = styled(" after ", Style.DIM) + styled(leaves, Style.PLAIN) if leaves else EMPTY
    where = styled(f" on {boxes}", Style.PLAIN) if boxes else EMPTY
    return styled("swap to ", Style.PLAIN) + styled(swap.target, Style.STRONG) + where + after + more


def goal(swap: Swap) -> str:
    """Return the target of a swap; for a swap that only stops, the stopped profiles."""
    return swap.target or f"stop {', '.join(swap.evict)}"


def swap_rows(view: View, swap: Swap, width: int) -> list[Line]:
    upper = (phase_line(swap), _bar(swap, width), _times(swap, view, width))
    return [clip(row, width) for row in (*upper, _log(swap, view), _waiting(swap, view, width))]


def phase_line(swap: Swap) -> Line:
    """Format the phases: `✓ drain ✓ stop ▶ reclaim · preflight · create`; skipped phases stay blank."""
    phases = phases_of(swap)
    now = phases.index(swap.phase)
    return join((_phase(swap, phase, phases.index(phase) - now) for phase in phases), styled("  "))


def _phase(swap: Swap, phase: SwapPhase, place: int) -> Line:
    if place < 0:
        ran = phase in swap.stage_s
        return styled("✓ " if ran else "  ", Style.GOOD) + styled(phase, Style.PLAIN if ran else Style.DIM)
    if place > 0:
        return styled(f"· {phase}", Style.DIM)
    return styled(f"▶ {phase}", Style.STRONG)


def _bar(swap: Swap, width: int) -> Line:
    cells = min(METER, width // 2)
    stage = styled(phrases.stage_text(swap), Style.PLAIN) if swap.progress else EMPTY
    past = styled(phrases.past_stages(swap), Style.DIM)
    stage += GAP + past if past and cells + len(" 100 %    ") + length(stage + past) <= width else EMPTY
    if swap.fraction is None:
        return styled("─" * cells, Style.FAINT) + styled("  ") + (stage or styled("no estimate yet", Style.DIM))
    done, rest = meter(swap.fraction, cells)
    bar = styled(done, Style.GOOD if swap.still_since is None else Style.WARN) + styled(rest, Style.FAINT)
    return bar + styled(f" {swap.fraction * 100:3.0f} %  ", Style.STRONG) + stage


def _times(swap: Swap, view: View, width: int) -> Line:
    """Format elapsed and remaining time; where both have no room, what comes next stays."""
    elapsed = styled("elapsed ", Style.DIM) + styled(words.age(view.now - swap.started_at), Style.STRONG)
    if swap.target is None:
        return elapsed
    outlook = _outlook(swap, view)
    both = elapsed + GAP + outlook
    return both + _learned(swap, width - length(both)) if length(both) <= width else outlook


def _outlook(swap: Swap, view: View) -> Line:
    rest = phrases.time_left(swap, view.now)
    if swap.still_since is not None:
        return styled(f"stalled: {phrases.still_text(swap, view.now)}", Style.WARN)
    if rest is None:
        return styled(
            phrases.estimate_text(swap, view.now) if swap.reads_s else "first load here: no estimate", Style.DIM
        )
    return styled(phrases.estimate_text(swap, view.now), Style.STRONG if rest.s or rest.high_s else Style.WARN)


def _learned(swap: Swap, room: int) -> Line:
    """Name the earlier swaps behind the estimate, in `room` cells or not at all."""
    if swap.still_since is not None or not swap.learned_from:
        return EMPTY
    usual = f"   usually {duration(swap.expected_s)}" if swap.expected_s is not None else ""
    told = f"{usual}   {counted(swap.learned_from, 'load')}"
    if swap.similar:
        told = f"   from {counted(swap.learned_from, 'load')} of the same model"
    return styled(told, Style.DIM) if len(told) <= room else EMPTY


def _log(swap: Swap, view: View) -> Line:
    if waits := phrases.wait_text(swap, view.now):
        return styled(waits, Style.PLAIN)
    detail = swap.progress.detail if swap.progress else ""
    heard = phrases.heard_text(swap, view.now).removeprefix("last line ")
    label = f"log, {heard}  " if heard else "log "
    return styled(label, Style.DIM) + (styled(detail, Style.PLAIN) if detail else styled("-", Style.DIM))


def _waiting(swap: Swap, view: View, width: int) -> Line:
    requests = view.snapshot.requests.values() if view.snapshot else ()
    names = [
        f"{request.client} {words.age(view.now - request.started_at)}"
        for request in requests
        if words.waits_for(request, swap)
    ]
    count = max(swap.waiting, len(names))
    verb = "waits" if count == 1 else "wait"
    who = f"{count} {verb}{': ' if names else ''}{', '.join(names)}" if count else "nobody waits"
    cause = styled(f"{words.CAUSES[swap.cause]}  ", Style.DIM)
    keys = styled("x", Style.STRONG) + styled(" cancels", Style.DIM)
    if swap.still_since is not None:
        keys = styled("K", Style.STRONG) + styled(" extends  ", Style.DIM) + keys
    waiting = styled(who, Style.PLAIN if count else Style.DIM)
    return justify(waiting, cause + keys if length(waiting) + length(cause + keys) < width else keys, width)
