"""Other boxes, reached over ssh: their registry, connections, containers, figures and memory guard.

DESIGN.md has the plan. Nothing is installed on another box, and no port is opened on it without authentication.
"""
