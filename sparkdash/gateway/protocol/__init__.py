"""Formats of requests and answers: bytes in, bytes or decisions out.

Owns: which route a path is, what a body says, how it is changed for an engine, and how an answer is read and changed.
Must not know sockets, clocks, leases or the gateway's own state: every module here is pure.
"""
