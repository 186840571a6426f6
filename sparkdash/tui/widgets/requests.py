"""Tables of the requests: those that the daemon remembers, open ones first, and the recorded past.

Rule: figures missing in the engine's usage are "-"; nothing is counted from chunks.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pydantic_core import to_json

from sparkdash.domain.metric import LiveRequest
from sparkdash.domain.phrases import about, output_of_request
from sparkdash.domain.request import Request
from sparkdash.domain.state import OPEN
from sparkdash.tui.lines import words
from sparkdash.tui.lines.chart_window import DAY_S
from sparkdash.tui.mirror import ConnectionState, View
from sparkdash.tui.text import Line, Style, dimmed, key_hints, pad, shorten, shorten_apart, styled
from sparkdash.tui.widgets.table import Column, Table, TableRow, figures, titles
from sparkdash.units import DASH, duration, fitted, number, percent

STATE, ROOMY_STATE, LEAST_PROFILE, MOST_PROFILE = 16, 20, 12, 32
CLIENT, WHOLE_CLIENT, ROOMY = 12, 20, 120
"""Width of the client's name in cells, and its width in terminals of ROOMY columns and more."""
MATTERS = 2
"""Columns up to this `gives_way` rather cut the profile's name than go."""
MANY = 8
SILENT_S = 10.0
"""Seconds without a token after which a running request says so."""


class Progress(NamedTuple):
    """A request, what passed through the gateway of its answer so far, and the time of the daemon's clock."""

    request: Request
    live: LiveRequest | None
    now: float
    here: float
    node: str = ""
    """Box whose engine has the request; empty while that is unknown, and with this box alone."""


class Names(NamedTuple):
    """Names among which each must be told apart."""

    clients: frozenset[str]
    profiles: frozenset[str]


def _waited(of: Progress) -> str:
    request = of.request
    until = request.granted_at or request.finished_at or of.now
    return duration(max(until - request.started_at, 0.0))


def _arrived(of: Progress) -> str:
    return time.strftime("%H:%M:%S", time.localtime(of.request.started_at + of.here - of.now))


def _prompt(of: Progress) -> str:
    told, guess = of.request.prompt_tokens, of.request.prompt_estimate
    return f"~{fitted(guess, 5)}" if told is None and guess is not None else fitted(told, 6)


def _cached(of: Progress) -> str:
    prompt, cached = of.request.prompt_tokens, of.request.cached_tokens
    return percent(cached / prompt) if prompt and cached is not None else DASH


def _output(of: Progress) -> str:
    if of.live is None or of.request.completion_tokens is not None:
        output, estimated = output_of_request(of.request)
        return about(fitted(output, 5 - estimated), estimated=estimated)
    return _estimate(of.live, fitted(of.live.output_tokens, 5 - of.live.estimated))


def _rate(of: Progress) -> str:
    if of.live is None or of.request.decode_tok_s is not None:
        return fitted(of.request.decode_tok_s, 6, 1)
    return _estimate(of.live, fitted(of.live.tok_s, 6 - of.live.estimated, 1))


def _estimate(live: LiveRequest, text: str) -> str:
    return f"~{text}" if live.estimated and text != DASH else text


def _moment(of: Progress) -> str:
    day_old = of.now - of.request.started_at >= DAY_S
    return time.strftime("%d %b %H:%M", time.localtime(of.request.started_at)) if day_old else _arrived(of)


def _took(of: Progress) -> str:
    return duration(max((of.request.finished_at or of.now) - of.request.started_at, 0.0))


AT: Column[Progress] = Column("at", 10, 4, _arrived)
AT_SHORT: Column[Progress] = Column("at", 7, 4, lambda of: _arrived(of)[: len("00:00")])
NODE: Column[Progress] = Column("node", 9, 3, lambda of: shorten(of.node, 8) or DASH)
COLUMNS: tuple[Column[Progress], ...] = (
    AT_SHORT,
    Column("took", 8, 1, _took),
    Column("prompt", 7, 2, _prompt),
    Column("cached", 7, 2, _cached),
    Column("out", 6, 0, _output),
    Column("think", 6, 7, lambda of: fitted(of.request.reasoning_tokens, 5)),
    Column("wait", 7, 6, _waited),
    Column("ttft", 7, 5, lambda of: fitted(of.request.ttft_s, 6, 2)),
    Column("tok/s", 7, 0, _rate),
)
_LAST = {"took": 0, "wait": 1, "ttft": 1, "tok/s": 3, "out": 3, "prompt": 4, "cached": 5}
PAST_COLUMNS: tuple[Column[Progress], ...] = (
    Column("time", 13, 0, _moment),
    *(one._replace(gives_way=_LAST.get(one.name, one.gives_way)) for one in COLUMNS[1:]),
    Column("Wh", 7, 8, lambda of: number(of.request.energy_wh, 2)),
)
"""Columns of the past, where it matters most what took so long."""


def _columns(width: int, longest: int, every: Sequence[Column[Progress]]) -> tuple[list[Column[Progress]], int]:
    """Return the columns that fit, and the cells of the profile's name, for whose `longest` the lesser ones go."""
    columns = list(every)
    while columns:
        last = max(columns, key=lambda column: column.gives_way)
        least = LEAST_PROFILE if last.gives_way <= MATTERS else max(LEAST_PROFILE, longest + 1)
        if _profile_cells(width, columns) >= least:
            break
        columns.remove(last)
    exact = [AT if column is AT_SHORT else column for column in columns]
    columns = exact if _profile_cells(width, exact) > max(LEAST_PROFILE, longest) else columns
    return columns, max(min(_profile_cells(width, columns), max(MOST_PROFILE, longest + 1)), 0)


def _client(width: int) -> int:
    return WHOLE_CLIENT if width >= ROOMY else CLIENT


def _profile_cells(width: int, columns: Sequence[Column[Progress]]) -> int:
    return (
        width
        - 4
        - _client(width)
        - (ROOMY_STATE if width >= ROOMY else STATE)
        - sum(column.cells for column in columns)
    )


class RequestTable(Table):
    """Table of every request that the daemon remembers."""

    title = "requests"
    keys = key_hints(("⏎", "opens"), ("x", "ends"))
    live = True

    _longest = 0
    _every: Sequence[Column[Progress]] = COLUMNS

    @property
    def framed(self) -> bool:
        return self.beside and self.screen.has_class("-wide") and not self.screen.has_class("-low")

    def head(self, width: int) -> Line:
        columns, cells = _columns(width, self._longest, self._every)
        names = f" {'client':<{_client(width)}} {'profile':<{cells}}"
        return styled(f"{names}{titles(columns)}  state", Style.DIM)

    def shown(self, view: View) -> Sequence[Request]:
        self._every = [NODE, *COLUMNS] if view.nodes else COLUMNS
        return _by_client(view)

    def rows(self, view: View, width: int) -> list[TableRow]:
        shown = self.shown(view)
        self._longest = max((len(one.profile) for one in shown), default=0)
        laid = _columns(width, self._longest, self._every)
        names = Names(frozenset(one.client for one in shown), view.profile_names)
        return [_row(one, partial(_line, one, view, width, laid, names, dims=self.live)) for one in shown]

    def _empty(self, view: View, width: int) -> list[Line]:
        if view.snapshot and self.live:
            self.nothing = f"No request yet. Clients use {view.snapshot.daemon.url}; `model` names the profile."
        return super()._empty(view, width)


class PastTable(RequestTable):
    """Table of past requests. The page sets `found` and `nothing`, and filters by what the daemon finds."""

    title = "past requests"
    live = False
    nothing = "reading the past…"
    found: tuple[Request, ...] = ()
    goes_on = False
    _every = PAST_COLUMNS

    def shown(self, view: View) -> Sequence[Request]:  # noqa: ARG002 - the page has read them
        return self.found

    def set_filter(self, text: str) -> None:
        pass

    def count_text(self, count: int) -> str:
        return f"{count}+" if self.goes_on else f"{count}"


def _row(one: Request, line: Callable[[], Line]) -> TableRow:
    return TableRow(one.id, line, lambda: to_json(one, exclude_none=True).decode(), partial(_words, one))


def _by_client(view: View) -> tuple[Request, ...]:
    """Return all requests; many open ones stand by client."""
    open_ = list(view.snapshot.requests.values()) if view.snapshot else []
    if len(open_) > MANY:
        open_.sort(key=lambda one: (one.client, one.started_at))
    return (*open_, *view.requests[len(open_) :])


def _line(
    request: Request, view: View, width: int, laid: tuple[Sequence[Column[Progress]], int], names: Names, *, dims: bool
) -> Line:
    """Format a request; an ended one is dim beside those that run."""
    live = view.sample.requests.get(request.id) if view.sample and request.state in OPEN else None
    of = Progress(request, live, view.known_at, view.here - (view.now - view.known_at), _node(request, view))
    line = styled(" ") + _name(request.client, _client(width), names.clients) + styled(" ")
    line += _name(request.profile, laid[1], names.profiles)
    line += figures(laid[0], of)
    if dims and request.state not in OPEN:
        line = dimmed(line)
    line += styled("  ") + _phase(of, view)
    return line if view.connection is ConnectionState.LIVE else dimmed(line)


def _node(request: Request, view: View) -> str:
    engine = view.snapshot.engines.get(request.profile) if view.snapshot else None
    if request.node is None:
        return ""
    nodes = engine.nodes if engine and request.node in engine.nodes else (request.node,)
    return view.boxes(nodes) if len(nodes) == 1 else f"{len(nodes)} boxes"


def _name(name: str, cells: int, others: frozenset[str]) -> Line:
    return pad(styled(shorten_apart(name, max(cells - 1, 1), others)), cells)


def _phase(of: Progress, view: View) -> Line:
    silent = of.live.silent_s if of.live else None
    if silent is not None and silent >= SILENT_S and not words.stuck_on(of.request, view):
        return styled(f"! no token {words.age(silent)}", Style.WARN)
    return words.request_state(of.request, view)


def _words(one: Request) -> str:
    """Return the text that the search looks in: every request's JSON has the same keys."""
    told = (one.id, one.client, one.session, one.key, one.profile, one.route, one.finish_reason, one.error)
    return " ".join(word for word in told if word)
