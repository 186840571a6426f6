"""Texts that the command line, the screens and waiting streams share.

Pure.
"""
