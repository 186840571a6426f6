"""Translate: /v1/messages and /v1/responses for engines that speak only chat completions.

Rule: nothing is dropped in silence. What a chat cannot carry is refused, or named in LEFT_OUT and in the log.
"""
