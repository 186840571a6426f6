"""Table of the profiles as a tree of families, and the details of the one under the cursor."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import NamedTuple

from sparkdash.domain.engine import Engine, EngineState, LivenessState
from sparkdash.domain.images import Stock, how_to_get, image_origin
from sparkdash.domain.phrases import by_family, family_of, plan_boxes
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.state import Figures, Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.tui.lines import words
from sparkdash.tui.lines.swap_progress import plan_lines
from sparkdash.tui.mirror import View
from sparkdash.tui.text import (
    EMPTY,
    EdgeText,
    Line,
    Style,
    clip,
    frame,
    key_hints,
    length,
    pad,
    shorten_apart,
    styled,
    wrap,
)
from sparkdash.tui.widgets.panel import Panel
from sparkdash.tui.widgets.table import Table, TableRow, figure
from sparkdash.units import GIB, number, size

MARK, STATE, LEAST_NAME = 3, 17, 18
WHY = " (⏎ why)"


class ProfileColumn(NamedTuple):
    """Column between the name and the state."""

    name: str
    cells: int
    text: Callable[[ProfileSummary, Figures | None, Stock | None], str]
    figure: bool = True


BOXES = ProfileColumn("boxes", 7, lambda profile, *_: str(profile.nodes))
COLUMNS: tuple[ProfileColumn, ...] = (
    ProfileColumn("context", 9, lambda profile, *_: words.context_length(profile.context)),
    BOXES,
    ProfileColumn("on disk ", 11, lambda _, __, stock: f"{size(_bytes_here(stock))} "),
    ProfileColumn("engine", 15, lambda profile, *_: words.engine_name(profile), figure=False),
    ProfileColumn("needs", 8, lambda one, *_: number(one.needs_bytes / GIB if one.needs_bytes else None, 0, " GiB")),
    ProfileColumn("best", 7, lambda _, seen, __: number(seen.best if seen else None, 1)),
    ProfileColumn("publ.", 7, lambda profile, *_: number(profile.published_decode_tok_s, 1)),
)
"""Columns that a narrow terminal omits, from the left: name and state are always whole words."""


SECTIONS = ("runs", "on this box", "used here", "can run here", "cannot run here")
"""Sections of the list, by rank."""
CANNOT = SECTIONS.index("cannot run here")
HEADING = "\0"
"""Begins the key of a section's heading."""


class Cells(NamedTuple):
    """Layout of a row."""

    name: int
    columns: tuple[ProfileColumn, ...]


def cells(width: int, longest: int) -> Cells:
    columns = COLUMNS
    while columns and _left(width, columns) < LEAST_NAME:
        columns = columns[1:]
    return Cells(max(min(_left(width, columns), longest + 1), LEAST_NAME), columns)


def _left(width: int, columns: tuple[ProfileColumn, ...]) -> int:
    return width - MARK - STATE - sum(column.cells for column in columns)


class ProfileTable(Table):
    """Table of every profile, variants under their family."""

    title = "profiles"
    live = True
    nothing = "No profiles. Put YAML files into ~/.config/sparkdash/profiles and press r."

    stock: Mapping[str, Stock] = {}
    """Local files by profile, as far as they were read; set by the page."""
    pinned: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    """Pinned profiles and families, and profiles that are loaded with the daemon; set by the page."""
    _longest_name = 0

    def __init__(self) -> None:
        super().__init__()
        self.folded = {CANNOT}
        """Sections of which only the heading is shown; a search opens them, but for what cannot run."""

    @property
    def profile(self) -> str | None:
        """Profile under the cursor; None on a heading."""
        return None if self.cursor is None or self.cursor.startswith(HEADING) else self.cursor

    def fold(self, key: str) -> None:
        """Fold or open the section whose heading has this key."""
        self.folded ^= {int(key.removeprefix(HEADING))}
        self.redraw()

    def fold_here(self) -> None:
        """Fold the section of the profile under the cursor, and stand on its heading."""
        above = [row.key for row in self._rows[: self._index() or 0] if row.key.startswith(HEADING)]
        if self.profile and above:
            self.cursor = above[-1]
            self.fold(above[-1])

    def _words(self, profile: ProfileSummary, width: int) -> list[str]:
        """Return what is said beside a name: how many boxes where no column tells it, and what is kept."""
        name, columns = profile.name, cells(width, self._longest_name).columns
        pinned = name in self.pinned or name.partition("/")[0] in self.pinned
        several = profile.nodes > 1 and BOXES not in columns
        words = {f"{profile.nodes} nodes": several, "pinned": pinned, "preloaded": name in self.preload}
        return [word for word, holds in words.items() if holds]

    def head(self, width: int) -> Line:
        name, columns = cells(width, self._longest_name)
        names = "".join(f"{one.name:>{one.cells}}" if one.figure else f"{one.name:<{one.cells}}" for one in columns)
        return styled(f"   {'profile':<{name}}{names}  state", Style.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:
        if view.snapshot is None:
            return []
        families = ranked_families(view.snapshot.profiles, partial(rank, view.snapshot, self.stock))
        if self.sorted_by:  # a variant that stands by itself has its whole name
            families = [(section, [(one, "") for one, _ in family]) for section, family in families]
        self._longest_name = max(
            (length(_name(view.snapshot, *one, self._words(one[0], width))) for _, rows in families for one in rows),
            default=0,
        )
        out: list[TableRow] = []
        hides = bool(self.filter) and CANNOT in self.folded
        for section, members in groupby(families, key=lambda family: family[0]):
            rows = [row for _, family in members for row in family if not (hides and row[0].cannot_run)]
            is_open = section not in self.folded or bool(self.filter)
            if not self.filter:
                out.append(_heading(section, len(rows), is_open=is_open))
            out += [self._row(view.snapshot, *row, width) for row in rows] if is_open else []
        return out

    def _row(self, snapshot: Snapshot, one: ProfileSummary, branch: str, width: int) -> TableRow:
        laid, stock = cells(width, self._longest_name), self.stock.get(one.name)
        name = _name(snapshot, one, branch, self._words(one, width), laid.name - 1)
        return TableRow(one.name, partial(_line, snapshot, one, stock, name, laid, width), one.name)


def _heading(section: int, count: int, *, is_open: bool) -> TableRow:
    count_text = "" if is_open else f"  {count}"  # of a family in which one runs, not all rows run
    line = styled(f" {'▾' if is_open else '▸'} {SECTIONS[section]}{count_text}", Style.DIM)
    return TableRow(f"{HEADING}{section}", lambda: line, stops=not is_open)


Family = tuple[int, list[tuple[ProfileSummary, str]]]


def ranked_families(profiles: tuple[ProfileSummary, ...], rank: Callable[[ProfileSummary], int]) -> list[Family]:
    """Return the families by their best rank, then by name, their members with the branch before each name.

    A variant that cannot run stands with its family.
    """
    out: list[Family] = []
    for family, group in groupby(by_family(profiles), key=family_of):
        members = list(group)
        based = members[0].name == family
        branches = ["  └ " if one is members[-1] else "  ├ " for one in members]
        pairs = zip(members, branches, strict=True)
        shown = [(one, branch if based and one.name != family else "") for one, branch in pairs]
        out.append((min(map(rank, members)), shown))
    return sorted(out, key=lambda found: found[0])


def rank(snapshot: Snapshot, stock: Mapping[str, Stock], profile: ProfileSummary) -> int:
    """Rank a profile in the list: 0 runs or starts, 1 is on this box, 2 was used here, 3 can run, 4 cannot."""
    here = stock.get(profile.name)
    runs = profile.name in snapshot.engines or snapshot.swap_to(profile.name) is not None
    complete = here is not None and (here.image or here.weights) and not lacks(here)
    used = profile.name in snapshot.figures
    can = profile.cannot_run is None and profile.least_nodes <= 1 + len(snapshot.nodes)
    holds = (runs, complete, used, can, True)
    return next(number for number, held in enumerate(holds) if held)


def _name(snapshot: Snapshot, profile: ProfileSummary, branch: str, kept: list[str], cells: int | None = None) -> Line:
    """Format a name with what is said beside it; with `cells` both are made to fit."""
    short = profile.name.partition("/")[2] if branch else profile.name
    default = snapshot.default is not None and snapshot.default.profile == profile.name
    told = [profile.speculation or "", "default" if default else "", *kept]
    if cells is not None and (room := cells - len(branch)) > 0:
        short = shorten_apart(short, room, frozenset(one.name for one in snapshot.profiles))
    told = [f"  {word}" for word in told if word]
    while told and cells is not None and len(branch + short + "".join(told)) > cells:
        told.pop()
    method = "".join(told)
    return styled(branch, Style.FAINT) + styled(short, _name_style(snapshot, profile)) + styled(method, Style.DIM)


def _line(
    snapshot: Snapshot, profile: ProfileSummary, stock: Stock | None, name: Line, laid: Cells, width: int
) -> Line:
    sides = [side for side, one in (("A", snapshot.toggle_a), ("B", snapshot.toggle_b)) if one == profile.name]
    line = pad(styled(" " + "".join(sides), Style.STRONG), MARK) + pad(name, laid.name - 1) + styled(" ")
    if profile.cannot_run:
        room = width - length(line) - len(WHY)
        return line + clip(styled(f"✗ cannot run: {profile.cannot_run}", Style.DIM), room) + styled(WHY, Style.DIM)
    seen = snapshot.figures.get(profile.name)
    for column in laid.columns:
        told = column.text(profile, seen, stock)
        line += figure(told, column.cells) if column.figure else pad(styled(told), column.cells)
    return line + styled("  ") + _state(snapshot, profile, stock)


def _name_style(snapshot: Snapshot, profile: ProfileSummary) -> Style:
    if profile.cannot_run:
        return Style.DIM
    return Style.STRONG if profile.name in snapshot.engines else Style.PLAIN


def _state(snapshot: Snapshot, profile: ProfileSummary, stock: Stock | None) -> Line:
    if profile.engine.is_remote:
        return styled("elsewhere", Style.DIM)
    if profile.name in snapshot.parked:
        return styled("✗ parked", Style.BAD)
    engine = snapshot.engines.get(profile.name)
    if engine is None:
        coming = snapshot.swap_to(profile.name) is not None
        return styled("◌ coming", Style.PLAIN) if coming else _on_the_box(profile, stock)
    standing = words.STANDING.get(engine.liveness.state) if engine.liveness else None
    glyph, style = standing or words.ENGINE[engine.state]
    state = engine.liveness.state if engine.liveness and standing else engine.state
    edited = styled(", edited", Style.WARN) if snapshot.is_outdated(profile.name) else EMPTY
    return styled(f"{glyph} {state}", style) + edited


def lacks(stock: Stock | None) -> list[str]:
    items = (("image", stock.image), ("weights", stock.weights)) if stock else ()
    return [name for name, item in items if item and not item.here]


def _bytes_here(stock: Stock | None) -> int | None:
    found = [item.size for item in (stock.image, stock.weights) if item and item.size] if stock else []
    return sum(found) or None


def _nodes_with_all(stock: Stock | None) -> str:
    return ", ".join(node for node, its in stock.nodes.items() if its.is_complete) if stock else ""


def _on_the_box(profile: ProfileSummary, stock: Stock | None) -> Line:
    if missing := lacks(stock):
        if there := _nodes_with_all(stock):
            return styled(f"on {there}", Style.PLAIN)
        if "image" in missing and profile.build is not None:
            return styled(image_origin(profile.image or "", profile.build).value, Style.DIM)
        return styled(f"no {missing[0]}" if len(missing) == 1 else "not here", Style.DIM)
    known = stock is not None and (stock.image or stock.weights)
    places = filter(None, ("on disk", _nodes_with_all(stock)))
    return styled(", ".join(places), Style.PLAIN) if known else styled("off", Style.DIM)


class ProfileDetail(Panel):
    """Details of the profile under the cursor. `plan` and `stock` are set by the page."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: str | None = None
        self.plan: Plan | None = None
        self.stock: Mapping[str, Stock] = {}

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        profile = view.snapshot.profile(self.chosen) if view.snapshot and self.chosen else None
        lines: list[Line] = []
        if profile is not None and view.snapshot is not None:
            plan = self.plan if self.plan and self.plan.profile == profile.name else None
            verdict = _verdict(profile, view.snapshot, plan, lacks(self.stock.get(profile.name)), width - 4)
            facts = verdict if len(verdict) > 2 else [_serves(profile), *verdict]
            lines = [*_about(profile, width - 4, height - 2 - len(facts)), *facts]
        title = styled(profile.name, Style.STRONG) if profile else styled("no profile")
        keys = key_hints(("⏎", "describes"), ("s", "switches")) if profile else EMPTY
        return frame(lines, width, EdgeText(title, keys), height=height)


def _about(profile: ProfileSummary, width: int, room: int) -> list[Line]:
    """Format the description in `room` lines, at least one, and the published note where there is room."""
    rows = wrap(profile.about or profile.name, width, Style.PLAIN, limit=max(room, 1))
    note = f"published: {profile.published_note}" if profile.published_note else ""
    if note and len(rows) < room:
        return rows + wrap(note, width, Style.DIM, limit=room - len(rows))
    return [*rows[:-1], rows[-1] + styled(f"  {note}", Style.DIM)] if note else rows


def _serves(profile: ProfileSummary) -> Line:
    names = ", ".join((profile.name, *profile.serves))
    facts = [f"model: {names}", f"context {words.context_length(profile.context)}"]
    if profile.image:
        facts.append(profile.image)
    return styled(" · ".join(facts), Style.DIM)


def _verdict(
    profile: ProfileSummary, snapshot: Snapshot, plan: Plan | None, missing: list[str], width: int
) -> list[Line]:
    if profile.cannot_run:
        nearest = f". Nearest that runs: {profile.nearest}" if profile.nearest else ""
        return wrap(f"✗ cannot run as published: {profile.cannot_run.rstrip('.')}{nearest}", width, Style.WARN, limit=2)
    if profile.engine.is_remote:
        return wrap("remote service: nothing to start, no memory here; requests for it are forwarded", width, Style.DIM)
    if parked := snapshot.parked.get(profile.name):
        why = f"✗ parked, u releases it: {parked.failure.message} {parked.failure.hint or ''}"
        return wrap(why, width, Style.BAD, limit=3)
    engine = snapshot.engines.get(profile.name)
    if engine and (trouble := _trouble(engine, width)):
        return trouble
    if snapshot.swap_to(profile.name):
        return [styled("starting", Style.GOOD)]
    if plan is None:
        return [styled("fits now: -", Style.DIM)]
    boxes = plan_boxes(plan, snapshot.daemon.host, several=bool(snapshot.nodes))
    return _outlook(profile, plan, [] if engine else missing, width, boxes)


def _trouble(engine: Engine, width: int) -> list[Line]:
    if engine.state is EngineState.FAILED and engine.failure:
        return wrap(f"✗ {engine.failure.message} {engine.failure.hint or ''}", width, Style.BAD, limit=3)
    if engine.liveness and engine.liveness.state is LivenessState.STUCK:
        return wrap(f"✗ stuck, {engine.liveness.why}", width, Style.BAD, limit=3)
    return []


def _outlook(profile: ProfileSummary, plan: Plan, missing: list[str], width: int, boxes: str) -> list[Line]:
    if plan.held and not plan.evict:
        return wrap(plan.held, width, Style.WARN, limit=2)
    lines = plan_lines(plan, boxes)
    if "image" in missing and profile.build is not None:
        told = f"⚠ image not on this box. {how_to_get(profile)}"
        return [lines[0], *wrap(told, width, Style.WARN, limit=2)]
    if missing:
        told = f"⚠ {' and '.join(missing)} not on this box: sparkdash pull {profile.name}"
        return [lines[0], *wrap(told, width, Style.WARN, limit=1)]
    return lines
