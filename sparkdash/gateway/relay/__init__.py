"""Requests for an engine, from the body that was read to the last byte of the answer.

Owns: the wait for an engine, sending the request there, relaying the answer, retries and fallbacks.
`passthrough` is the way in. Must not know how an engine is started.
"""
