"""Servers without a dialect, as their owners describe them.

Pure.
"""
