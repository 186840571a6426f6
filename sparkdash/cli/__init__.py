"""The command line: `main` lists the commands; each package holds one group of them.

Rule 1: `sparkdash --help` and completion must feel instant. Command modules import typer and the leaf modules at
module level, and everything else inside the command.
Rule 2: results go to stdout (pure JSON with --json), everything else to stderr.
"""

OPENING = "Opening the dashboard ..."
