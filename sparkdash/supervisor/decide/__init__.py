"""Decisions without I/O: who gets an engine, which swaps begin, whether an engine makes progress; see DESIGN.md."""
