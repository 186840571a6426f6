"""Catalog: profiles/*.yaml become Profiles; all problems are found at once, each with file:line."""

from sparkdash.catalog.catalog import Catalog, ProfileProblem, summarize
from sparkdash.catalog.load import load_catalog

__all__ = ["Catalog", "ProfileProblem", "load_catalog", "summarize"]
