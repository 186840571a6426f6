"""Scripts that run on another node.

Rule: the standard library of Python 3.8 alone, as nothing is installed there. `program` sends these modules as text.
"""
