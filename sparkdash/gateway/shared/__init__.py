"""State that all requests share: body memory, running requests, the exclusive holder, row updates.

Owns: small objects with one instance per gateway. Must not know HTTP, engines, or what a request is about.
"""
