"""Measurement of a run: launch each arm, send its requests, time every piece of each answer."""
