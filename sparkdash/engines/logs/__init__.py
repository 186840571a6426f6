"""Engine logs: the progress of a load, and the reason of a failed one.

Pure.
"""
