"""Translate: /v1/messages and /v1/responses for engines that speak only chat completions.

Owns: when a request is translated, the process that does it, and what it says. Must not know leases or how engines come up.
Rule: litellm is loaded in that process alone (2.7 s of processor time, 180 MB); `litellm_calls` is the one module that names it.
"""
