"""Liveness of engines: what a look finds, questions over HTTP, and the reasons for an engine's end."""
