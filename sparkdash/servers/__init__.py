"""Known servers: what their own documents say about starting, asking and ending them.

Pure.
"""
