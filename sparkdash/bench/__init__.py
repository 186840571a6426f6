"""The bench: measures profiles against each other over engine launches, and says what can be claimed.

Owns: the plan of a run (plan), its measurement (measure), the verdicts (judge), its reports (report), and what all four
share: the run, its records, its results and its folder on disk. Must not know: podman, the supervisor.
"""
