"""The dashboard of the terminal in a browser, `sparkdash web`.

Owns: who may open it, and how many at once. Must not know what the screens show: each tab gets a process of its own
that draws them (`python -m sparkdash.cli.dashboard`), and textual-serve carries its bytes.
"""
