"""Judgement of a run: metrics, statistics, verdicts and accuracy."""
