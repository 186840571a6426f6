"""Engines as containers, through the command line of podman or docker."""
