"""Scripts that run on another node, with the standard library of Python 3.10 alone: nothing is installed there."""
