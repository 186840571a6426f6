"""Flags of the engines' programs by version, read from their sources, and what is wrong with a profile's args by them.

`tests/flag_tables` makes the data.

Pure.
"""
