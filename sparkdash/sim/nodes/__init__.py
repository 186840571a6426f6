"""Simulated second box: its memory, GPU, link and processes.

Owns: what stands for another node in the demo and in tests. Must not know: profiles, the supervisor, ssh.
"""
