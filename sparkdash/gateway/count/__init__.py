"""Count: tokens of a /v1/messages/count_tokens request whose engine does not run, from its model's own files.

Rule 1: a count is what the engine itself would say, or there is none: an estimate would pass for a count.
Rule 2: templates come from anybody. They are rendered in a sandbox, in a process of its own that has limits of
memory and time and holds nobody's key.
Rule 3: jinja2 and tokenizers are loaded in that process alone.
"""
