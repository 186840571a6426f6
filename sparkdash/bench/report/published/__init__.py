"""Reports in the layouts of published tables, and published figures beside a run's own."""
