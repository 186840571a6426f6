"""Control routes that only read, the recorded past included; but edited profiles are read first."""

import asyncio
import re

from sparkdash.api import requests
from sparkdash.api.answers import CapturedText, ProfileList
from sparkdash.domain.engine import IncidentList, summarize_repairs
from sparkdash.domain.history import FigureList, MarkList, PastRequests, RecentFigures, Series, UsageReport, all_figures
from sparkdash.domain.images import Inventory
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.node import Diagnosis
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.routes import NO_BENCH, TEXT, ControlCall, StreamedAnswer, by_row, encode_lines, required
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.capture import CapturedRequest
from sparkdash.gateway.http.event_feed import serve_feed
from sparkdash.gateway.relay.admitted import meant_profile
from sparkdash.limits import shown
from sparkdash.rules import redact_profile
from sparkdash.store.past import RecordedHistory

_EVENT_ID = re.compile(r"[0-9]{1,18}")
"""Python itself refuses to read a number of more than 4300 digits."""


async def state(call: ControlCall, _asked: requests.NoParameters) -> Snapshot:
    """Return the whole state, with ages counted to now. A poll counts as a listener for 15 s."""
    call.deps.bus.note_poll()
    return call.deps.bus.snapshot.replace(at=call.deps.clock())


async def events(call: ControlCall, asked: requests.FeedPosition) -> None:
    """Stream a snapshot, then each fact with its number."""
    told = call.exchange.head.headers.get(b"last-event-id")
    heard = int(told) if told and _EVENT_ID.fullmatch(told) else None
    since = heard if asked.since is None else asked.since
    await serve_feed(call.deps.bus, call.deps.event_encoder, call.exchange, since, holds=call.key_holds)


async def profiles(call: ControlCall, _asked: requests.NoParameters) -> ProfileList:
    """Read the profile files again where they changed, and list them."""
    await call.deps.refresh()
    return profile_list(call.deps)


async def profile(call: ControlCall, asked: requests.ProfileName) -> Profile:
    """Return one profile, with secrets masked."""
    await call.deps.refresh()
    return redact_profile(call.deps.catalog().find(asked.name))


async def plan(call: ControlCall, asked: requests.ProfileName) -> Plan:
    """Say what `use` would evict, whether the profile fits, and how long it takes."""
    deps = call.deps
    await deps.refresh()
    name = meant_profile(asked.name, deps.catalog(), deps.choices(), lambda: deps.bus.snapshot)
    return await deps.supervisor.plan(name)


async def incidents(call: ControlCall, asked: requests.IncidentQuery) -> IncidentList:
    """List incidents, of all profiles or of one."""
    kept = call.deps.supervisor.incidents()
    found = kept.incidents
    if asked.profile is not None:
        name = call.deps.catalog().find(asked.profile).name
        found = tuple(one for one in found if one.profile == name)
        kept = IncidentList(incidents=found, repairs=summarize_repairs(found))
    return kept.replace(incidents=found[: asked.limit])


async def inventory(call: ControlCall, _asked: requests.NoParameters) -> Inventory:
    """Look for the image and the weights of each profile."""
    deps = call.deps
    await deps.refresh()
    return await deps.inventory(deps.bus.snapshot.profiles) if deps.inventory else Inventory()


async def memory(call: ControlCall, _asked: requests.NoParameters) -> MemoryAccount:
    """Account for every byte of the memory; takes up to a second."""
    hint = "Without a demo, `sparkdash memory` shows who holds this box's memory."
    return await required(call.deps.memory, "The demo's memory is simulated.", "no_memory_account", hint)()


async def doctor(call: ControlCall, asked: requests.DoctorQuery) -> Diagnosis:
    """Run the checks of `sparkdash doctor` on this box; takes seconds."""
    hint = "`sparkdash doctor` examines this one."
    return await required(call.deps.examine, "The demo's box is simulated.", "no_doctor", hint)(asked.check or ())


async def measured_runs(call: ControlCall, _asked: requests.NoParameters) -> bytes:
    """List the measured runs, as `sparkdash bench show --json` writes them."""
    return await required(call.deps.runs, *NO_BENCH)(None)


async def run_report(call: ControlCall, asked: requests.RunName) -> bytes:
    """Return the report of one run, as `sparkdash bench show --json` writes it."""
    return await required(call.deps.runs, *NO_BENCH)(asked.run)


async def logs(call: ControlCall, asked: requests.LogQuery) -> StreamedAnswer:
    """Stream the log of an engine, also after its container is gone."""
    lines = call.deps.supervisor.logs(asked.name, tail=asked.tail, follow=asked.follow)
    return StreamedAnswer(TEXT, encode_lines(lines, call.key_holds))


def profile_list(deps: Deps) -> ProfileList:
    snapshot = deps.bus.snapshot
    return ProfileList(profiles=snapshot.profiles, problems=snapshot.problems)


HOUR_S = 3600.0
DAY_S = 86400.0


def _within(
    asked: requests.SeriesQuery | requests.UsageQuery | requests.MarkQuery, now: float, length_s: float
) -> tuple[float, float]:
    """Return begin and end; without `until` now, without `since` `length_s` before the end."""
    end = now if asked.until is None else asked.until
    begin = max(end - length_s, 0.0) if asked.since is None else asked.since
    if begin >= end:
        raise AdmissionError("The period is empty: `since` is not before `until`.", code="invalid_request")
    return begin, end


async def history_figures(call: ControlCall, _asked: requests.NoParameters) -> FigureList:
    """List the figures, and the engines and boxes that have records of them."""
    return await _history(call).figures()


async def history_series(call: ControlCall, asked: requests.SeriesQuery) -> Series:
    """Read one figure of a profile's engine, or without a profile of the box: minimum, mean and maximum by bucket."""
    history = _history(call)
    _known(asked.figure)
    return await history.series(asked, _within(asked, call.deps.clock(), HOUR_S))


async def history_recent(call: ControlCall, asked: requests.RecentQuery) -> RecentFigures:
    """Read figures of all engines and of the box over the last minutes."""
    for name in asked.figure or ():
        _known(name)
    return await _history(call).recent(asked, call.deps.clock())


async def history_usage(call: ControlCall, asked: requests.UsageQuery) -> UsageReport:
    """Add up the requests of a period: tokens, errors, waits, and quantiles within 1 %."""
    return await _history(call).usage(asked, _within(asked, call.deps.clock(), DAY_S))


async def history_requests(call: ControlCall, asked: requests.PastRequestQuery) -> PastRequests:
    """List ended requests: figures and names, never content."""
    return await _history(call).requests(asked)


async def history_marks(call: ControlCall, asked: requests.MarkQuery) -> MarkList:
    """List the events of a period, oldest first."""
    return await _history(call).marks(asked, _within(asked, call.deps.clock(), DAY_S))


def _history(call: ControlCall) -> RecordedHistory:
    return required(call.deps.history, "Nothing is recorded here.", "no_history")


def _known(figure: str) -> None:
    names = [info.name for info in all_figures()]
    if figure not in names:
        raise AdmissionError(
            f"No figure is called {figure!r}.",
            code="figure_not_found",
            status=404,
            hint=f"Recorded figures: {', '.join(names)}.",
        )


async def captured_request(deps: Deps, request_id: str) -> CapturedRequest:
    """Return the captured request. Raises AdmissionError with the way to have the next ones captured."""
    find = deps.captured
    kept = None if find is None else await asyncio.to_thread(find, request_id)
    if kept is not None:
        return kept
    on = "Requests are captured now; this one came before, or is too old."
    off = "`capture = true` in config.toml keeps the bodies of requests from the daemon's next start on."
    raise AdmissionError(
        f"The body of request {shown(request_id)} was not captured.",
        code="not_captured",
        status=404,
        hint=on if deps.capture is not None else off,
    )


async def request_text(call: ControlCall, asked: requests.RequestId) -> CapturedText:
    """Return the body of a captured request, and its answer."""
    kept = await captured_request(call.deps, asked.request_id)
    return CapturedText(request=kept.id, body=kept.body, answer=kept.answer)


HANDLERS = by_row(
    state, events, profiles, profile, plan, incidents, inventory, memory, doctor, measured_runs, run_report, logs,
    history_figures, history_series, history_recent, history_usage, history_requests, history_marks, request_text,
)  # fmt: skip
