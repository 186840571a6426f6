"""Exporters: a profile in the words of other tools.

Pure: a profile and its container in, text out. What a format has no place for is named in a comment. Must not know: how the
container came about, or where the text goes. A podman command line needs none of this: the runtime's own argv is it.
"""
