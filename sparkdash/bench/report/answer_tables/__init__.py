"""Tables of what was answered: the owner's own requests, needles."""
