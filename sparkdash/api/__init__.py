"""Control API: one table of its calls, with the models of what they take and answer.

Owns: method, path, request model and answer model of every route below `/api`. `control` is the table, `rows` says how
a row becomes a request and how its answer is read, `requests` and `answers` are the models that are no domain values.
The clients inherit the table as methods; the gateway registers its handlers by the same rows.
Must not know: sockets, HTTP libraries, who serves a call and who makes it.
"""
