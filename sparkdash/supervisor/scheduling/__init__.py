"""Scheduling decisions: who is granted an engine, and which swaps begin. No module here does I/O; see DESIGN.md."""
