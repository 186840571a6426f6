"""Judgement of a run: metrics, statistics, verdicts and accuracy.

Owns: every comparison between arms. Must not know: engines, files, how a report looks.
"""
