"""Reports and resumed runs for a daemon, each in a process of its own.

Rule: the daemon's interpreter reads and judges no run. A thread that computes a report would show in the latencies of a
run under measurement.
"""

import asyncio
import json
from typing import Any

from sparkdash.api.answers import BenchPlan
from sparkdash.api.requests import StartRunBody
from sparkdash.errors import AdmissionError, HostError
from sparkdash.host import command
from sparkdash.limits import shown
from sparkdash.paths import PYTHON, bench_dir

PATIENCE_S = 60.0
INTERRUPTED = 130


async def read_report_json(run: str | None, *, simulated: bool = False) -> bytes:
    """Return JSON: all runs (a list of bench.run.Run), or the report of one (bench.report.report.Report).
    `simulated` includes only runs of simulated engines.
    Raises AdmissionError: there is no such run, or it cannot be read; HostError: `report_failed`.
    """
    if run is not None:
        await require_run(run)
    which = ["--simulated"] if run is None and simulated else [] if run is None else ["--", run]
    return (await _output(["sparkdash", "bench", "show", "--json", *which], "The runs cannot be read")).encode()


async def require_run(run: str) -> None:
    """Check that the run exists before a process is started. Raises AdmissionError: `run_not_found`."""
    known = await asyncio.to_thread(lambda: [one.parent.name for one in bench_dir().glob("*/run.json")])
    if not known or not (run == "last" or (run and any(name.startswith(run) for name in known))):
        raise AdmissionError(
            f"There is no run {shown(run)}.",
            code="run_not_found",
            status=404,
            hint="`sparkdash bench show` lists them.",
        )


async def plan_run(wish: StartRunBody) -> BenchPlan:
    """Return what a run would measure, and how long that takes. Raises SparkdashError."""
    said = await _output(_ab_words(wish, "--dry-run"), "The run cannot be planned", code="plan_failed")
    return BenchPlan.model_validate_json(said)


async def start_run(wish: StartRunBody) -> str | None:
    """Measure a run to its end, or until cancelled; return the error text, None when it is complete or was stopped."""
    return await _measured(_ab_words(wish, "--yes"))


async def resume_run(run: str) -> str | None:
    """Measure the gaps of a run, as `start_run` does."""
    return await _measured(["sparkdash", "bench", "resume", "--yes", "--json", "--", run])


def _ab_words(wish: StartRunBody, *options: str) -> list[str]:
    reps = ["--reps", str(wish.reps)] if wish.reps else []
    given = ["--suite", wish.suite, "--mode", wish.mode, *reps, *options, "--json"]
    return ["sparkdash", "ab", *given, "--", *wish.profiles]


async def _output(module: list[str], trouble: str, *, code: str = "report_failed") -> str:
    """Run a module of ours and return what it prints. Raises AdmissionError, HostError."""
    try:
        done = await command.run_command([*PYTHON, "-m", *module], deadline_s=PATIENCE_S)
    except (OSError, TimeoutError) as error:
        raise HostError(f"{trouble}: {error or 'it took too long'}.", code=code) from error
    if done.code != 0:
        raise _refusal(done, trouble)
    return done.out


async def _measured(module: list[str]) -> str | None:
    try:
        done = await command.run_command([*PYTHON, "-m", *module], deadline_s=None)
    except OSError as error:
        return f"It could not be started: {error.strerror}."
    return None if done.code in (0, INTERRUPTED) else str(_refusal(done, "It said"))


def _refusal(done: command.CommandResult, without_a_reason: str) -> AdmissionError | HostError:
    """Return the command's own error. Without JSON, `without_a_reason` precedes its last line."""
    try:
        told: dict[str, Any] = json.loads(done.out)["error"]
    except (ValueError, KeyError, TypeError):
        said = done.err.strip().splitlines()[-1:] or ["no reason told"]
        return HostError(f"{without_a_reason}: {said[0]}", code="report_failed")
    status = 404 if told["code"] == "run_not_found" else 409
    return AdmissionError(told["message"], code=told["code"], hint=told.get("hint"), status=status)
