"""The nouns of sparkdash: frozen values, one meaning each.

Owns: what a profile, an engine, a swap, a request, a sample, an event and a snapshot are, and `state.apply`.
Must not know: asyncio, time, sockets, files. Every value is JSON-ready through pydantic.
"""
