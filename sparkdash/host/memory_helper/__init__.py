"""The memory helper: an installed unit that frees and compacts the box's memory as root.

Owns: the unit's files, their installation and the call. Must not know when memory should be freed.
"""
