"""Client set-up: each client's configuration as data, and safe writing of its files.

Owns: the clients' formats. Must not know the daemon: callers pass an address, a model and a key.
"""
