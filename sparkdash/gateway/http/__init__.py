"""HTTP between one client and the gateway: request head, headers, body, answer, and the feed of events.

Owns: reading a request and sending its answer, whatever carries it. Must not know keys, engines or leases.
"""
