"""The box: containers, GPU, memory. One outside thing per file.

Must not know: profiles' meaning, the supervisor, HTTP. Every call out of the process has a deadline.
"""
