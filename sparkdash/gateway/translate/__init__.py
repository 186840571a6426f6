"""Translate: /v1/messages and /v1/responses for engines that speak only chat completions.

Rule: litellm is loaded in that process alone (2.7 s of processor time, 180 MB), and only `litellm_calls` names it.
"""
