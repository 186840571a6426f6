"""The dashboard in the terminal.

Rule 1: a panel draws a View into lines and does nothing else; only rows that differ are repainted.
Rule 2: colour means state, and every state also has a word or a glyph.
Rule 3: unknown values are "-", dimmed; stale ones are dimmed with their age; simulated ones say so.
"""
