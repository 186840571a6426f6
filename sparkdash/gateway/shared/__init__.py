"""State that all requests share: body memory, running requests, the exclusive holder, row updates."""
