"""Catalog: profiles/*.yaml become Profiles.

Owns: the file format, its checks, names and aliases. All problems are found at once, each with file:line, and a broken
file never hides the others. Must not know how an engine is started.
"""

from sparkdash.catalog.catalog import Catalog, ProfileProblem, summarize
from sparkdash.catalog.load import load_catalog

__all__ = ["Catalog", "ProfileProblem", "load_catalog", "summarize"]
