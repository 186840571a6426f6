"""Admission: which pages and callers may use which route."""
