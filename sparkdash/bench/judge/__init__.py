"""Judgement of a run: metrics, statistics, verdicts, accuracy, and the roofline.

Owns: every comparison between arms. Must not know: engines, files, how a report looks.
"""
