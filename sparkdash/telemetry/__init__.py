"""Telemetry: figures of the engines and the box, once a second.

Owns: reading text expositions and /slots, the formulas, the loop that measures. Must not know the readers of samples.
"""

from sparkdash.telemetry.collector import Collector, CollectorInputs

__all__ = ["Collector", "CollectorInputs"]
