"""Links between boxes: which networks two boxes share, and what goes over them when measured.

Owns: scripts that are piped to both ends, and the order in which the ends start. Rule: nothing of these scripts is
left on a box, not even when the link or this program dies in the middle.
"""
