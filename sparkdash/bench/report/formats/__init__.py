"""Output formats of a report: Markdown, terminal, HTML, and the CSV of llama-benchy.

Owns: the syntax of each format. Must not know: which tables a report has, how a verdict is made.
"""
