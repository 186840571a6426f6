"""Recipes of the clients, one file for each: facts, without logic or I/O.

Pure.
"""
