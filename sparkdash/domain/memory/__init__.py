"""The box's unified memory: who holds it, what a launch needs and took, how it is fragmented, what the guard may do.

Pure.
"""
