"""State that all requests share: the memory of bodies, requests that can be cancelled, the exclusive holder, row updates.

Owns: small objects with one instance per gateway. Must not know HTTP, engines, or what a request is about.
"""
