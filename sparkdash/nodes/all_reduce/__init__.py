"""Test of an all-reduce between containers on two boxes, through a profile's own image: what tensor parallelism does.

Owns: the script of a rank, the containers, their end, and the formula of the bus bandwidth. Must not know ssh.
"""
