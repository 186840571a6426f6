"""Simulation: a simulated engine, a simulated box, and the demo's own traffic.

Rule: nothing here is a measurement, and everything says so: the model list, the text, the GPU's name, the version.
"""
