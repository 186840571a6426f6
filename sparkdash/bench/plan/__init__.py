"""Plan of a run: suites, prompts, the order of launches, and the time that they take."""
