"""Engines: what is known of each kind, in one folder or file of its own, and what they share beside them. Pure."""
