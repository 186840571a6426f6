"""Profile sources: git collections of recipes and profiles, read at a pinned commit.

Owns: the list of sources, their clones, and what each holds. Must not know: profiles in use, the daemon. Nothing in a
clone is checked out or run: files are read out of the object database.
"""
