"""One engine out of several containers on several nodes: their start, state, logs and end."""
