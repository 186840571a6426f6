"""Engines: how each kind is started, probed, read and understood.

Owns: the contract of a dialect (adapter), one dialect per engine kind (dialects), and what they share. Must not know:
asyncio, sockets, files, clocks.
Pure.
"""
