"""Figures and memory guard of other nodes, by scripts that are sent over ssh and never written to a disk there.

Owns: the scripts (`remote/`), the stream of figures, and the lease of each node's guard. Must not know how a node is
reached.
"""
