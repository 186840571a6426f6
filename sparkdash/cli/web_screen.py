"""The dashboard for one tab of a browser: `python -m sparkdash.cli.web_screen`.

A program of its own, as `sparkdash` asks for a terminal, and under textual-serve stdout is a pipe.
"""

from __future__ import annotations

from sparkdash.cli.setup.this_box import ThisBox
from sparkdash.client.address import find_daemon
from sparkdash.tui.app import run_dashboard

if __name__ == "__main__":
    run_dashboard(box=None if find_daemon().given else ThisBox())
