"""The command line. Rule: results go to stdout (pure JSON with --json), everything else to stderr.

`sparkdash --help` and completion must feel instant: command modules import typer and the leaf modules at module
level, and everything else inside the command.
"""

OPENING = "Opening the dashboard ..."
