"""Access to the gateway: keys with their rights, and the audit log.

Owns: the file of keys and the audit log. Must not know HTTP.
"""
