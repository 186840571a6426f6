"""Control API: one table of its calls, with the models of what they take and answer."""
