"""History: recorded figures in buckets, requests added up by hour, and what reads them.

Owns: tables, rollups and queries of the past; `store/DESIGN.md` explains them. Must not know threads: all functions
that get a database block, and the store calls them in its thread.
"""
