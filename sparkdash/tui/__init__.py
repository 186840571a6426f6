"""The dashboard: what a Spark owner leaves open all day.

Owns: the mirror of the daemon's world, its words and glyphs on the terminal, and what keys do.
Must not know: the daemon's insides; everything comes through `link.DaemonLink`.
Rule 1: a panel is a pure drawing of a View into lines; only rows that differ are repainted.
Rule 2: colour means state, and every state also has a word or a glyph.
Rule 3: unknown is "-", dimmed; stale is dimmed with its age; simulated says so.
"""
