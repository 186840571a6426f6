"""Report of a run, for people and for other programs.

Owns: the report's values (report), how results become one (assemble), its tables (table, matrix, comparison, page) and
their forms: Markdown, terminal, CSV, JSON, localmaxxing, one HTML page. Must not know: how anything is measured, nor
statistics: those are handed in by bench/stats and bench/verdict.
Rule: a simulated figure is labelled in every form; a cell without a figure stays visible and says what it wants.
"""
