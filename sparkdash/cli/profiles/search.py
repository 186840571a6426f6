"""`sparkdash profiles search`: find recipes in the sources.

Owns: the table. Must not know git.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sparkdash.cli.output.screen import print_fitting_table, print_json, print_note
from sparkdash.cli.parameters import AsJson
from sparkdash.errors import ProfileError
from sparkdash.units import DASH, counted

HEAD = ("recipe", "model", "boxes", "about")
ALIGN = "<<><"
LEAST = ("about", "model", "boxes")
ABOUT = 60
"""Characters of a description that the table shows."""


def search_profiles(
    words: Annotated[
        list[str], typer.Argument(metavar="WORD…", help="Words of its name, model or description; all must occur.")
    ],
    as_json: AsJson = False,
) -> None:
    """Find recipes and profiles in your sources.

    Reads what was fetched before; the network is used only for a source whose clone is missing.

    \b
    Examples:
      sparkdash profiles search gemma
      sparkdash profiles search qwen3.6 dflash
      sparkdash profiles search eugr --json | jq -r '.[].name'
    """
    from dataclasses import asdict

    from sparkdash.sources.collection import matching
    from sparkdash.sources.reading import entries
    from sparkdash.sources.source_file import read_sources

    sources = read_sources()
    if not sources:
        raise ProfileError(
            "There are no sources to search.",
            code="source_unknown",
            hint="`sparkdash profiles sources add eugr` or `… add spark-arena` adds one.",
        )
    found = matching((entry for source in sources for entry in entries(source)), words)
    if as_json:
        print_json([{"address": entry.address, **asdict(entry)} for entry in found])
    elif found:
        rows = [
            (one.address, one.model or DASH, str(one.nodes) if one.nodes else DASH, (one.about or DASH)[:ABOUT])
            for one in found
        ]
        print_fitting_table(HEAD, rows, ALIGN, LEAST)
        print_note(f"`sparkdash profiles add {found[0].address}` makes a profile of it.")
    else:
        print_note(f"Nothing matches {' '.join(words)!r} in {counted(len(sources), 'source')}.")
        print_note("`sparkdash profiles sources add ADDRESS` follows a further one.")
        raise typer.Exit(1)
