"""Memory that a launch will need, estimated from the profile and the checkpoint before any measurement.

Pure.
"""
