"""Images and weights on their way to another node: what is missing there, sent over ssh, checked and resumed.

Owns: the copy of files between two boxes. Must not know engines, swaps or terminals. `receiver.py` is the part that
runs on the other node.
"""
