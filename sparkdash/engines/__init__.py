"""The engines' dialects: how each is started, probed, read and understood.

Owns: one module per engine kind. Pure: no asyncio, sockets, files or clocks. The dialects do not know each other.
"""
