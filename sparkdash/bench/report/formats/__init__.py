"""Output formats of a report: Markdown, terminal, HTML, and the formats of llama-benchy and localmaxxing.

Owns: the syntax of each format. Must not know: which tables a report has, how a verdict is made.
"""
