"""Panels: each draws one part of a View into lines."""
