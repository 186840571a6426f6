"""The page of metrics that Prometheus reads, `GET /metrics`.

Rule: an unknown figure is absent, never 0. Labels hold names of profiles, nodes and programs, and no prompt, id, key or
path. Nothing is done per chunk of an answer.
"""

from sparkdash.prometheus.exporter import MetricsExporter

__all__ = ["MetricsExporter"]
