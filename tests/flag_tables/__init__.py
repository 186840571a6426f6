"""Maker of the flag tables in `sparkdash/flags/`, from the engines' source trees; nothing of them is run."""
