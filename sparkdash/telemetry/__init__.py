"""Telemetry: figures of the engines and the box, once a second."""

from sparkdash.telemetry.collector import Collector, CollectorInputs

__all__ = ["Collector", "CollectorInputs"]
