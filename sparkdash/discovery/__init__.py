"""Discovery: what other programs of this box already serve, keep or configure models.

Owns: where they are looked for, and what `sparkdash setup` proposes from it. Must not know: how a proposal is carried
out. Looking changes nothing and takes a few seconds at most.
"""
