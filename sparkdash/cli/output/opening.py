"""First words of `sparkdash` without a command.

Owns: the text alone, so that it is shown before anything else is imported.

Pure.
"""

OPENING = "Opening the dashboard ..."
