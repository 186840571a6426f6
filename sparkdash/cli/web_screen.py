"""The dashboard for one tab of a browser: `python -m sparkdash.cli.web_screen`.

A program of its own, as `sparkdash` asks for a terminal, and under textual-serve stdout is a pipe.
"""

from __future__ import annotations

from sparkdash.cli.dashboard import show_dashboard

if __name__ == "__main__":
    show_dashboard()
