"""The table of the control API: every route below `/api`, with the types of its parameters and of its answer. Pure."""

from functools import partial

from pydantic import TypeAdapter

from sparkdash.api import requests
from sparkdash.api.answers import BenchPlan, CapturedText, Done, LeaseGranted, ProfileList, SettingList, TogglePair
from sparkdash.api.rows import Call, DocumentCall, EventReader, Stream, read_answer, read_event
from sparkdash.domain.container import PullProgress
from sparkdash.domain.engine import IncidentList
from sparkdash.domain.event import Event
from sparkdash.domain.history import FigureList, MarkList, PastRequests, RecentFigures, Replay, Series, UsageReport
from sparkdash.domain.images import Inventory
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.node import Diagnosis
from sparkdash.domain.profile import Profile
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan
from sparkdash.sse import Lines

EXAMINATION_S = 60.0
"""Limit of a doctor's examination or a report. Each of the doctor's commands has its own limit, 15 s at most."""
FEED_S = 45.0
"""Limit of the feed. The daemon sends something every 15 s: three missed comments are a dead link."""
NO_LIMIT = None
"""Limit of an order that is answered once it is carried out: the owner's settings say how long a drain may take."""


class ControlApi:
    """Every call. A client that inherits this class has them as methods, which take keyword arguments."""

    state = Call("GET", "/api/state", requests.NoParameters, Snapshot, "Everything that is known now")
    events = Stream(
        "GET",
        "/api/events",
        requests.FeedPosition,
        lambda: EventReader[Snapshot | Event](
            {"snapshot": partial(read_answer, TypeAdapter(Snapshot)), "fact": read_event}
        ),
        "The feed: a snapshot, then facts",
        silence_s=FEED_S,
    )
    profiles = Call("GET", "/api/profiles", requests.NoParameters, ProfileList, "The catalog")
    profile = Call(
        "GET", "/api/profiles/{name:path}", requests.ProfileName, Profile, "One whole profile, by name or alias"
    )
    plan = Call("GET", "/api/plan/{name:path}", requests.ProfileName, Plan, "What using a profile would do")
    incidents = Call(
        "GET",
        "/api/incidents",
        requests.IncidentQuery,
        IncidentList,
        "Times that an engine stood still, newest first, and the mean time to repair",
    )
    inventory = Call(
        "GET", "/api/shelf", requests.NoParameters, Inventory, "What of each profile is on this box and its nodes"
    )
    memory = Call(
        "GET",
        "/api/memory",
        requests.NoParameters,
        MemoryAccount,
        "Who holds the box's memory: every byte with its holder",
    )
    doctor = Call(
        "GET",
        "/api/doctor",
        requests.DoctorQuery,
        Diagnosis,
        "What of this box would keep engines from running",
        silence_s=EXAMINATION_S,
    )
    measured_runs = DocumentCall(
        "GET",
        "/api/bench",
        requests.NoParameters,
        bytes,
        "What was measured: every run, the newest first",
        silence_s=EXAMINATION_S,
    )
    run_report = DocumentCall(
        "GET", "/api/bench/{run}", requests.RunName, bytes, "The report of one run", silence_s=EXAMINATION_S
    )
    history_figures = Call(
        "GET",
        "/api/history/figures",
        requests.NoParameters,
        FigureList,
        "Figures that are recorded, with unit and meaning",
    )
    history_series = Call(
        "GET", "/api/history/series", requests.SeriesQuery, Series, "One recorded figure over a period, in buckets"
    )
    history_recent = Call(
        "GET", "/api/history/recent", requests.RecentQuery, RecentFigures, "Figures of the last minutes, for sparklines"
    )
    history_usage = Call(
        "GET", "/api/history/usage", requests.UsageQuery, UsageReport, "Requests of a period, added up by group"
    )
    history_requests = Call(
        "GET",
        "/api/history/requests",
        requests.PastRequestQuery,
        PastRequests,
        "Ended requests of the past, one by one",
    )
    history_marks = Call(
        "GET", "/api/history/marks", requests.MarkQuery, MarkList, "Swaps, kills, incidents and notices of a period"
    )
    request_text = Call(
        "GET",
        "/api/requests/{request_id}/text",
        requests.RequestId,
        CapturedText,
        "What a captured request asked and was answered",
    )
    settings = Call(
        "GET",
        "/api/settings",
        requests.NoParameters,
        SettingList,
        "Every setting of config.toml: value, default, meaning",
    )
    logs = Stream("GET", "/api/logs/{name:path}", requests.LogQuery, Lines, "An engine's log")

    use = Call(
        "POST", "/api/use", requests.UseBody, Plan, "Make a profile resident; the swap goes on by itself", status=202
    )
    stop = Call(
        "POST",
        "/api/stop",
        requests.StopBody,
        Done,
        "Stop one engine, or all; answered when it is gone, or at once with `wait: false`",
        silence_s=NO_LIMIT,
    )
    release = Call("POST", "/api/release", requests.ReleaseBody, Done, "Let a parked profile be tried again, or all")
    extend_load = Call(
        "POST",
        "/api/extend-load",
        requests.ExtendBody,
        Done,
        "Let a load that stands still go on for its whole limit again",
    )
    cancel = Call("POST", "/api/cancel", requests.NoParameters, Done, "Cancel every swap under way", silence_s=NO_LIMIT)
    cancel_request = Call(
        "POST",
        "/api/requests/{request_id}/cancel",
        requests.RequestId,
        Done,
        "End one request; its client is told, its engine stops",
    )
    replay = Call(
        "POST",
        "/api/replay",
        requests.ReplayBody,
        Replay,
        "Plan a replay of a captured request on another profile, or carry it out and compare both answers",
        silence_s=NO_LIMIT,
    )
    toggle = Call(
        "POST", "/api/toggle", requests.ToggleBody, TogglePair, "Mark two profiles A and B, and flip between them"
    )

    lease = Call(
        "POST",
        "/api/lease",
        requests.LeaseBody,
        LeaseGranted,
        "Have the gateway to oneself, for a while; the same again renews it",
    )
    end_lease = Call("DELETE", "/api/lease", requests.NoParameters, Done, "Let others in again")
    end_measuring = Call(
        "POST",
        "/api/bench/end",
        requests.NoParameters,
        Done,
        "Ask the run that is measured to stop; what is measured is kept",
    )
    resume_run = Call(
        "POST",
        "/api/bench/{run}/resume",
        requests.RunName,
        Done,
        "Measure what a run still lacks, in a process of its own",
        status=202,
    )

    start_run = Call(
        "POST",
        "/api/bench",
        requests.StartRunBody,
        BenchPlan,
        "Plan an A/B run of some profiles, or begin it, in a process of its own",
        silence_s=EXAMINATION_S,
        status=202,
    )

    change_setting = Call(
        "POST", "/api/settings", requests.SettingBody, SettingList, "Change one setting of config.toml, or remove it"
    )
    pull = Stream(
        "POST",
        "/api/pull-image",
        requests.PullBody,
        lambda: EventReader({"progress": partial(read_answer, TypeAdapter(PullProgress))}),
        "Fetch a profile's image",
    )
    reload = Call("POST", "/api/reload", requests.NoParameters, ProfileList, "Read the profiles again")
    shutdown = Call("POST", "/api/shutdown", requests.ShutdownBody, Done, "End the daemon", status=202)
