"""YAML 1.2 with line marks: reading, writing, and one file as a document."""
