"""Check of firewalls: real TCP connections between the boxes, both ways.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, fail, ok, unknown
from sparkdash.doctor.nodes.check import pair_check
from sparkdash.doctor.nodes.facts import BoxFacts, PairFacts, ReachTrial


@pair_check("firewall", "Engines' ports are open between the boxes, both ways.", connects=True)
def firewall(pair: PairFacts) -> Iterator[CheckResult]:
    """Judge the trials: engines connect on ports that cannot be foretold, so the link must be open."""
    if not pair.trials:
        yield unknown("No connection was tried: the boxes share no network, see the check link.")
    for trial in pair.trials:
        yield _judged(pair, trial)


def _judged(pair: PairFacts, trial: ReachTrial) -> CheckResult:
    boxes = {box.name: box for box in pair.boxes}
    source, target = boxes[trial.source], boxes[trial.target]
    way = f"{source.shown} to {target.shown}"
    if trial.problem:
        return unknown(f"{way}: {trial.problem}")
    tried = [port for port, outcome in trial.listened.items() if not outcome.startswith("not tried")]
    closed = [port for port in tried if trial.called.get(port) != "connected"]
    if not tried:
        return unknown(f"{way}: none of the ports was free to listen on.")
    if not closed:
        return ok(f"{way}: TCP {', '.join(map(str, tried))} connected.")
    return fail(
        f"{way}: TCP {', '.join(map(str, closed))} {'is' if len(closed) == 1 else 'are'} closed "
        f"({trial.called.get(closed[0], 'no answer')}); {len(tried) - len(closed)} of {len(tried)} connected.",
        target.command(f"sudo ufw allow from {_address(pair, source)}"),
    )


def _address(pair: PairFacts, box: BoxFacts) -> str:
    shared = pair.link()
    return str((shared.here if box is pair.here else shared.there).address)
