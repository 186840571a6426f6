"""Tables of the box under load: energy, power, clock, temperature, and the room for long contexts.

Owns: their columns and words. Must not know: how the figures are computed, Markdown.
"""
