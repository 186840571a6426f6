"""How each client is pointed at the gateway: its configuration as data, and its files written without harm.

Owns: the clients' formats. Must not know the daemon: it is told an address, a model and a key.
"""
