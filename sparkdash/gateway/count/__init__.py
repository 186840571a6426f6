"""Count: the tokens of a request to /v1/messages/count_tokens whose engine does not run, from its model's own files.

Owns: what a prompt is made of (the chat template, the tokenizer), and the process that makes it. Must not know leases.
Rule 1: a count is what the engine itself would say, or there is none: an estimate would pass for a count.
Rule 2: templates come from strangers. They are rendered in a sandbox, in a process of its own with a limit of memory and of
time, and that process has no key of anybody.
Rule 3: jinja2 and tokenizers are loaded in that process alone.
"""
