"""Weights from the Hugging Face hub, and weights that are on this box already.

Owns: downloads, the headers of remote weights, and the layout of the cache. Must not know: profiles, terminals.
"""
