"""`sparkdash` without a command."""

from __future__ import annotations

import sys

from sparkdash.cli.output.opening import OPENING
from sparkdash.cli.output.screen import print_opening


def home() -> None:
    """Open the dashboard, starting a daemon if needed; without a terminal, print the status."""
    if not sys.stdout.isatty():
        from sparkdash.cli.engines.status import status

        status()
        return
    print_opening(OPENING)
    from sparkdash.cli.dashboard import open_dashboard

    open_dashboard()
