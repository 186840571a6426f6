"""Texts about a stuck engine and its repair, shared by the command line, the screen and waiting streams.

Rule: only observations, with the time since; no estimates.
Pure.
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
    """Word the current step, such as "requests cancelled, looking again 40s"; empty while nothing is done."""
    if liveness.step is None:
        return ""
    since = "" if liveness.step_since is None else f" {age(max(0.0, now - liveness.step_since))}"
    return _STEPS[liveness.step] + since


def state_text(liveness: Liveness, now: float) -> str:
    """Word the state, such as "stuck for 2m10s"; only the state's name for an engine that moves."""
    if liveness.state in (LivenessState.BUSY, LivenessState.PREFILL):
        return liveness.state.value
    return f"{liveness.state.value} for {age(max(0.0, now - liveness.since))}"


def waiting_on(liveness: Liveness | None, now: float) -> str:
    """Say what a request waits for while its engine is stuck; empty for any other engine."""
    if liveness is None or liveness.state is not LivenessState.STUCK:
        return ""
    step = step_text(liveness, now)
    return f"engine stuck: {step}" if step else f"engine {state_text(liveness, now)}"


def is_told(liveness: Liveness | None) -> bool:
    """Whether the liveness is worth showing: an engine that has stood still for a while, for any reason."""
    return liveness is not None and (
        liveness.state not in (LivenessState.BUSY, LivenessState.PREFILL) or bool(liveness.why)
    )


def repair_text(time: RepairTime) -> str:
    """Word the mean time to repair: "3 repairs, 4m12s on average"."""
    return f"{time.n} repair{'s' * (time.n != 1)}, {duration(time.mean_s)} on average"


def end_text(incident: Incident, now: float) -> str:
    """Word the outcome of an incident: "restarted after 4m12s", or the current step of an open one."""
    if incident.ended_at is not None and incident.end is not None:
        return f"{incident.end.value} after {duration(incident.ended_at - incident.began)}"
    step = incident.steps[-1] if incident.steps else None
    return "open" if step is None else f"{_STEPS[step.step]} {age(max(0.0, now - step.at))}"
