"""Flags of the engines' programs by version, as data read from their sources, and what a profile's args do against them.

`tests/flag_tables` makes the data.

Pure.
"""
