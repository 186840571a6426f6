"""Operating-system process of a simulated engine: start-up log, claimed memory, CPU load, and exit.

Owns: signals, files, and exit codes. Must not know: what a route answers.
"""
