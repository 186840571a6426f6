"""Report of a run, for people and for other programs.

Owns: the report's values (report), its assembly from results (assemble), its tables and charts, and the page that
orders them (page); the output formats are in formats/. Must not know: how anything is measured, how a verdict is made.
Rule: a simulated figure is labelled in every format. A cell without a figure stays visible and says what it needs.
"""
