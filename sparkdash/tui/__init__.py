"""The dashboard in the terminal.

Owns: the terminal's copy of the daemon's state, its words and glyphs, and what keys do.
Must not know: the daemon's insides; everything comes through `link.DaemonLink`.
Rule 1: a panel draws a View into lines and does nothing else; only rows that differ are repainted.
Rule 2: colour means state, and every state also has a word or a glyph.
Rule 3: unknown values are "-", dimmed; stale ones are dimmed with their age; simulated ones say so.
"""
