"""`sparkdash bench` and `sparkdash ab`: plan a measurement, run it, list and export its results."""
