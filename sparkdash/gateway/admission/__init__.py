"""Admission: which pages and callers may use which route, and what a key for some models sees.

Owns: host and origin checks, keys and their limits, the table of rights, and the audit log.
Must not know what a route does.
"""
