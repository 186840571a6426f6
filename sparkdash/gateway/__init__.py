"""The gateway: one door for clients (`/v1/*`, raw bytes) and for control (`/api/*`, typed JSON).

Owns: HTTP towards clients. Must not know how engines are started, only that a lease gives one.
"""
