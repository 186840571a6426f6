"""Textual widgets: the panels of the pages, the table and the find field."""
