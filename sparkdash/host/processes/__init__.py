"""Processes of the box: engines as plain processes, and whatever /proc says about a process."""
