"""Engines made of several containers on several nodes: start, state, logs and end."""
