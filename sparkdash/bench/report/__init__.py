"""Report of a run, for people and for other programs.

Rule: a simulated figure is labelled in every format. A cell without a figure stays visible and says what it needs.
"""
