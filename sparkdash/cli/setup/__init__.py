"""`sparkdash setup`: from an unpacked box to a first token, step by step."""
