"""`sparkdash incidents`: list when engines were stuck with requests, and what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkdash.cli.output.screen import print_json, print_text, terminal_width
from sparkdash.cli.output.tables import wrap_last_column
from sparkdash.cli.parameters import AsJson, MaybeProfileName

if TYPE_CHECKING:
    from sparkdash.domain.incident import Incident

NONE = "No engine has been stuck."


def incidents(profile: MaybeProfileName = None, as_json: AsJson = False) -> None:
    """List when engines were stuck, newest first.

    An engine is stuck when it holds requests and makes no progress. Each incident
    shows how it ended, what was observed, and the folder with its evidence. The
    mean time to repair runs from the last progress until the profile served again.

    \b
    Examples:
      sparkdash incidents
      sparkdash incidents gpt-oss-120b
      sparkdash incidents --json | jq -r '.incidents[].why'
    """
    import time

    from sparkdash.client.blocking import Client
    from sparkdash.domain.text.repair_text import repair_text

    with Client() as client:
        kept = client.incidents(profile=profile)
    if as_json:
        print_json(kept)
        return
    if not kept.incidents:
        print_text(NONE)
        return
    now = time.time()
    head = ("when", "profile", "how it ended", "what was seen")
    rows = [_row(one, now) for one in kept.incidents]
    print_text("\n".join(wrap_last_column(head, rows, "<<<", terminal_width())))
    if kept.repairs.every is not None:
        print_text(f"{repair_text(kept.repairs.every)}.")
    for name, each in kept.repairs.by_profile.items() if len(kept.repairs.by_profile) > 1 else ():
        print_text(f"  {name}: {repair_text(each)}")


def _row(one: Incident, now: float) -> tuple[str, ...]:
    from sparkdash.domain.text.repair_text import end_text
    from sparkdash.units import age

    words = [f"{one.why}.", one.note, f"Evidence: {one.evidence}" if one.evidence else ""]
    return f"{age(max(0.0, now - one.named_at))} ago", one.profile, end_text(one, now), " ".join(filter(None, words))
