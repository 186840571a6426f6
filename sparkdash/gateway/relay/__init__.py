"""Requests for an engine, from the body that was read to the last byte of the answer. `passthrough` is the way in."""
