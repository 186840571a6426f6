"""Judgement of one client's act: how its process ended, what it said, and the gateway's rows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clients import Act, Client

from sparkdash.domain.request import Request, RequestState

COLUMNS = ("plain", "wait", "tools", "streaming", "cancel")


@dataclass(frozen=True)
class Outcome:
    """Outcome of one act of one client."""

    status: int | None
    """Exit status of the process; None: it did not end in time."""
    took_s: float
    output: str
    rows: tuple[Request, ...] = ()
    """Requests of the act, in the gateway's books."""
    note: str = ""
    """Text of the client's note."""
    interrupted_at: float | None = None
    """Unix seconds."""
    freed_s: float | None = None
    """From the interrupt until the engine ran nothing; None: it was not interrupted, or the engine went on for too long."""


Outcomes = Mapping[Act, Outcome]


def cells(client: Client, outcomes: Outcomes) -> dict[str, str]:
    """Column: what stands there; a failure begins with "failed"."""
    found = dict.fromkeys(COLUMNS, "-")
    for act, outcome in outcomes.items():
        wrong = complaint(act, client, outcome)
        if act is Act.STREAM:
            waited = max((row.granted_at - row.started_at for row in outcome.rows if row.granted_at), default=0.0)
            found["wait"] = f"failed: {wrong}" if wrong else f"{waited:.0f} s"
            found["streaming"] = f"failed: {wrong}" if wrong else _streamed(outcome.rows)
        else:
            column = {Act.WHOLE: "plain", Act.TOOLS: "tools", Act.CANCEL: "cancel"}[act]
            well = "passed" if outcome.freed_s is None else f"{outcome.freed_s:.2f} s"
            found[column] = f"failed: {wrong}" if wrong else well
    return found


def _streamed(rows: Sequence[Request]) -> str:
    streams = sum(row.stream for row in rows)
    if not streams:
        return "failed: not streamed"
    return "passed" if streams == len(rows) else f"passed, {streams} of {len(rows)} requests"


def complaint(act: Act, client: Client, outcome: Outcome) -> str | None:
    rows = outcome.rows
    if not rows:
        return "no request in the books"
    if act is Act.CANCEL:
        return _not_cancelled(outcome)
    if outcome.status != 0:
        return f"status {outcome.status}"
    if not all(row.state is RequestState.DONE and row.completion_tokens for row in rows):
        return ", ".join(f"{row.route} {row.state} {row.error or ''}".strip() for row in rows)
    if not outcome.output.strip():
        return "said nothing"
    if act is Act.TOOLS and not re.search(rf"The tool returned: [^\n]*{outcome.note}", outcome.output):
        return "the model's answer to what the tool returned is missing"
    if act is Act.WHOLE and not client.only_streams and any(row.stream for row in rows):
        return "streamed"
    return None


def _not_cancelled(outcome: Outcome) -> str | None:
    if outcome.interrupted_at is None:
        return "no stream to interrupt"
    if outcome.status is None:
        return "did not end after its interrupt"
    gone = [row for row in outcome.rows if row.state is RequestState.GONE and row.stream]
    if not gone or not all(row in gone or _was_over(row, outcome) for row in outcome.rows):
        return ", ".join(f"{row.route} {row.state}" for row in outcome.rows)
    return "the engine went on" if outcome.freed_s is None else None


def _was_over(row: Request, outcome: Outcome) -> bool:
    if row.state is not RequestState.DONE or row.finished_at is None or outcome.interrupted_at is None:
        return False
    return row.finished_at < outcome.interrupted_at


def table(clients: Sequence[Client], versions: Mapping[str, str], outcomes: Mapping[str, Outcomes]) -> str:
    """Clients by columns, in Markdown; below it what the failed ones said last."""
    lines = [f"| client | version | {' | '.join(COLUMNS)} |", f"|---|---|{'---|' * len(COLUMNS)}"]
    for client in clients:
        row = cells(client, outcomes[client.name])
        lines.append(f"| {client.name} | {versions[client.name]} | {' | '.join(row[name] for name in COLUMNS)} |")
    for client in clients:
        for act, outcome in outcomes[client.name].items():
            if complaint(act, client, outcome):
                lines.append(
                    f"\n{client.name}, {act}: status {outcome.status} after {outcome.took_s:.0f} s. It said last:"
                )
                lines.append(outcome.output[-2000:])
    return "\n".join(lines)


def passed(clients: Sequence[Client], outcomes: Mapping[str, Outcomes]) -> bool:
    found = [cell for client in clients for cell in cells(client, outcomes[client.name]).values()]
    return not any(cell.startswith("failed") for cell in found)
