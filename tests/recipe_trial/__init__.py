"""Trial of the importers on other people's recipes: `python -m tests.recipe_trial FOLDER`; not part of the suite.

Of each recipe the words that it would run by its own rules are found by code that shares nothing with the importers,
and compared with the words of the profile that an import makes of it. Nothing in the folder is run.
"""
