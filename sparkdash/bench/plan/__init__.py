"""Plan of a run: suites, prompts, the order of launches, and the time that they take.

Owns: the cells of a suite (YAML in workloads/), the exact text of each prompt, sweeps over one parameter.
Must not know: HTTP, measured figures, verdicts.
"""
