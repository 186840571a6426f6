"""The gateway: one door for clients (`/v1/*`, raw bytes) and for control (`/api/*`, typed JSON)."""
