"""Pages and dialogs: which panels they contain, and what their own keys do."""
