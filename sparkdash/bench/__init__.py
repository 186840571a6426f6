"""The bench: measures profiles against each other over engine launches, and says what can be claimed.

Owns: the values of a run (results) and its folder on disk (folder), the order of launches, the statistics, the verdicts,
the math questions, the roofline. Must not know: podman, the supervisor, how a page is drawn.
"""
