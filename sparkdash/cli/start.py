"""Console script of `sparkdash`: says at once that the dashboard opens, then loads the command line.

Owns: the first words of `sparkdash` without a command. Rule: next to nothing is imported before them, as loading the
command line takes a quarter of a second of processor time on a small box.
"""

from __future__ import annotations

import sys

from sparkdash.cli.output.opening import OPENING


def main() -> None:
    """Run the console script."""
    if len(sys.argv) == 1 and sys.stdout.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"{OPENING}\r")
        sys.stderr.flush()
    from sparkdash.cli.main import main as run_command_line

    run_command_line()
