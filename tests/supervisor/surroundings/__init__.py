"""Surroundings of a supervisor in its tests: real where this machine has them, fakes for the rest."""
