"""Output formats of a report: Markdown, terminal, HTML, and the CSV of llama-benchy."""
