"""Processes of the box: engines as plain processes, and whatever /proc says about a process.

Owns: reading /proc and control groups, finding the processes of an engine, and ending them.
Must not know: containers' command lines, profiles.
"""
