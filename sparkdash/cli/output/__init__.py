"""Terminal output of every command: text, JSON, tables, progress lines and the panel of an expected failure."""
