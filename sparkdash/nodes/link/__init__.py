"""Links between boxes: which networks two boxes share, and what goes over them when measured.

Rule: nothing of these scripts is left on a box, not even when the link or this program dies in the middle.
"""
