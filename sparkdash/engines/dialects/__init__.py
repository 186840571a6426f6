"""Adapters, one per engine kind: command line, start-up log, probes and metric names. No dialect imports another.

Pure.
"""
