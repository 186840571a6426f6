"""Liveness of engines: signals, the judge of progress, HTTP probes, evidence, and the reasons for an engine's end."""
