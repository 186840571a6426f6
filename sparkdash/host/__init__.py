"""The box: containers, GPU, memory. One outside thing per file.

Every call out of the process has a deadline.
"""
