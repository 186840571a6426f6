"""Console script of `sparkdash`: opens the dashboard, or runs the command line.

Rule: no command is imported before the dashboard: loading the command line takes as long as the dashboard itself.
"""

import os
import sys

from sparkdash.cli import OPENING

COMPLETION = "_SPARKDASH_COMPLETE"
"""Variable by which a shell asks for the completion of commands; it gives no arguments."""


def main() -> None:
    can_draw = sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if len(sys.argv) > 1 or not can_draw or COMPLETION in os.environ:
        from sparkdash.cli.main import main as run_command_line

        run_command_line()
        return
    sys.stderr.write(f"{OPENING}\r")
    sys.stderr.flush()
    from sparkdash.cli.dashboard import exit_codes, open_dashboard

    with exit_codes():
        open_dashboard()
