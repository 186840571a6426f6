"""Engines as containers, through the command line of podman or docker.

Owns: every command line, its answers, and the end of a container. Must not know what an engine is.
"""
