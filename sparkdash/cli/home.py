"""`sparkdash` without a command, and `sparkdash version`."""

from __future__ import annotations

import sys

from sparkdash import __version__
from sparkdash.cli.output.opening import OPENING
from sparkdash.cli.output.screen import print_json, print_opening, print_text
from sparkdash.cli.parameters import AsJson


def home() -> None:
    """Open the dashboard, starting a daemon if needed; without a terminal, print the status."""
    if not sys.stdout.isatty():
        from sparkdash.cli.engines.status import status

        status()
        return
    print_opening(OPENING)
    from sparkdash.cli.dashboard import open_dashboard

    open_dashboard()


def version(as_json: AsJson = False) -> None:
    """Print the version.

    \b
    Examples:
      sparkdash version
      sparkdash version --json
    """
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        print_json({"sparkdash": __version__, "python": python})
    else:
        print_text(f"sparkdash {__version__} (Python {python})")
