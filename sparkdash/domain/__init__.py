"""Frozen values that every room shares: profile, engine, swap, request, sample, event and snapshot.

Owns: these values, and `state.apply`. Every value is JSON-ready through pydantic.
Must not know: asyncio, time, sockets, files. Pure.
"""
