"""Figures and memory guard of other nodes, by scripts that are sent over ssh and never written to a disk there."""
