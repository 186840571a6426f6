"""Exporters: a profile in the formats of other tools.

A profile and its container go in, text comes out. A key that the format cannot express is named in a comment. Must not
know: the origin of the container, the destination of the text. A podman command line needs no exporter: it is the
runtime's own argv.
"""
