"""Translate: /v1/messages and /v1/responses for engines that speak only chat completions.

Owns: when a request is translated, the process that does it, and its messages. Must not know leases or how engines
start.
Rule: litellm is loaded in that process alone (2.7 s of processor time, 180 MB), and only `litellm_calls` names it.
"""
