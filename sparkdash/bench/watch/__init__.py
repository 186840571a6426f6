"""Regression watch: a profile's figures by image, model revision, driver and kernel, over all recorded runs.

Owns: how evenings are grouped by build and compared. Must not know: how anything is measured, verdicts of a run.
"""
