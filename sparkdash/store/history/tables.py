"""Tables of the history, and the functions that their statements call.

Owns: SQL. Must not know threads, nor when rows are written.
"""

from __future__ import annotations

import sqlite3

from sparkdash.domain.history.sketch import merge_packed

USAGE_TABLES = ("usage_hours", "usage_days", "usage_profile_hours", "usage_profile_days", "usage_box_hours")
"""Requests by hour or day: by profile, client and key; by profile alone; all together."""
TABLES = (
    """CREATE TABLE IF NOT EXISTS history_subjects (
        id INTEGER PRIMARY KEY, profile TEXT NOT NULL, node TEXT NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, UNIQUE (profile, node)
    )""",
    """CREATE TABLE IF NOT EXISTS history_figures (
        box INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (box, name)
    ) WITHOUT ROWID""",
    # by time first: every second adds rows to one page, whatever the number of engines
    """CREATE TABLE IF NOT EXISTS history_seconds (
        start INTEGER NOT NULL, subject INTEGER NOT NULL, cells BLOB NOT NULL, PRIMARY KEY (start, subject)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS history_buckets (
        step INTEGER NOT NULL, subject INTEGER NOT NULL, start INTEGER NOT NULL, cells BLOB NOT NULL,
        PRIMARY KEY (step, subject, start)
    ) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS history_rolled (step INTEGER PRIMARY KEY, until INTEGER NOT NULL)",
    *(
        f"""CREATE TABLE IF NOT EXISTS {table} (
            start INTEGER NOT NULL, profile TEXT NOT NULL, client TEXT NOT NULL, key TEXT NOT NULL,
            requests INTEGER NOT NULL, errors INTEGER NOT NULL, gone INTEGER NOT NULL, prompt INTEGER NOT NULL,
            cached INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL, energy_wh REAL,
            waited INTEGER NOT NULL, wait_s REAL NOT NULL, waits BLOB, ttfts BLOB, rates BLOB,
            PRIMARY KEY (start, profile, client, key)
        ) WITHOUT ROWID"""
        for table in USAGE_TABLES
    ),
    """CREATE TABLE IF NOT EXISTS notices (
        at REAL NOT NULL, level TEXT NOT NULL, code TEXT NOT NULL, text TEXT NOT NULL, profile TEXT
    )""",
)


def add_functions(database: sqlite3.Connection) -> None:
    """Give the connection the function that adds sketches."""
    database.create_function("merge_sketch", 2, merge_packed, deterministic=True)
