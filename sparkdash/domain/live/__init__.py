"""Figures of one tick that do not come from an engine: what the gateway counts, and the energy.

Owns: the values. Must not know the names of metrics, nor who measures.
Pure.
"""

from sparkdash.domain.live.energy import Energy
from sparkdash.domain.live.gateway_figures import GatewayFigures, LiveRequest, TrafficLook

__all__ = ["Energy", "GatewayFigures", "LiveRequest", "TrafficLook"]
