"""A stuck engine and its repair in words, the same for the command line, the screen and the streams that wait. Pure.

Rule: only what was seen is told, with the time since; nothing is estimated.
"""

from __future__ import annotations

from sparkdash.domain.incident import Incident, RepairTime
from sparkdash.domain.liveness import Liveness, LivenessState, RepairStep
from sparkdash.units import age, duration

_STEPS = {
    RepairStep.WATCH: "only watched",
    RepairStep.EVIDENCE: "taking evidence",
    RepairStep.CANCEL: "requests cancelled, looking again",
    RepairStep.END: "ending it, then it starts again",
}


def step_text(liveness: Liveness, now: float) -> str:
    """ "requests cancelled, looking again 40s"; empty while nothing is done."""
    if liveness.step is None:
        return ""
    since = "" if liveness.step_since is None else f" {age(max(0.0, now - liveness.step_since))}"
    return _STEPS[liveness.step] + since


def state_text(liveness: Liveness, now: float) -> str:
    """ "stuck for 2m10s"; of an engine that moves only its state."""
    if liveness.state in (LivenessState.BUSY, LivenessState.PREFILL):
        return liveness.state.value
    return f"{liveness.state.value} for {age(max(0.0, now - liveness.since))}"


def waiting_on(liveness: Liveness | None, now: float) -> str:
    """What a request waits for whose engine is stuck; empty for any other engine."""
    if liveness is None or liveness.state is not LivenessState.STUCK:
        return ""
    step = step_text(liveness, now)
    return f"engine stuck: {step}" if step else f"engine {state_text(liveness, now)}"


def is_told(liveness: Liveness | None) -> bool:
    """Whether people should read of it: an engine that has stood still for a while, whatever the reason."""
    return liveness is not None and (
        liveness.state not in (LivenessState.BUSY, LivenessState.PREFILL) or bool(liveness.why)
    )


def repair_text(time: RepairTime) -> str:
    """ "3 repairs, 4m12s on average"."""
    return f"{time.n} repair{'s' * (time.n != 1)}, {duration(time.mean_s)} on average"


def end_text(incident: Incident, now: float) -> str:
    """ "restarted after 4m12s", or the step that an open incident is at."""
    if incident.ended_at is not None and incident.end is not None:
        return f"{incident.end.value} after {duration(incident.ended_at - incident.began)}"
    step = incident.steps[-1] if incident.steps else None
    return "open" if step is None else f"{_STEPS[step.step]} {age(max(0.0, now - step.at))}"
