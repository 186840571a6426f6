"""Telemetry: what the engines and the box say about themselves, once a second.

Owns: reading text expositions and /slots, the formulas, the loop that measures. Must not know who looks at it.
"""

from sparkdash.telemetry.collector import Collector

__all__ = ["Collector"]
