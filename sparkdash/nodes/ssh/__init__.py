"""Connections to nodes over ssh, and what a box tells of itself."""
