"""Measurement of a run: launch each arm, send its requests, time every piece of each answer.

Owns: the bench's only code that talks to the daemon and to engines, and the rules by which a request does not count.
Must not know: statistics, verdicts, reports.
"""
