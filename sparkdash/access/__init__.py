"""Who may use the gateway: keys and what each may do, and the record of what was done with that.

Owns: the file of keys and the audit log. Must not know HTTP.
"""
