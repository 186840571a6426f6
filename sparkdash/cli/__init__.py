"""The command line: `main` lists the commands; each package holds one group of them.

Rule 1: `sparkdash --help` and the shell's completion must feel instant: command files import typer and the leaves at
module level, everything else inside the command.
Rule 2: facts go to stdout (pure JSON with --json), all talk to stderr.
Must not know: HTTP, how an engine is run.
"""
