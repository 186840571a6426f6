"""Scheduling: decides who is granted an engine, and which swaps begin; see DESIGN.md.

Pure.
"""
