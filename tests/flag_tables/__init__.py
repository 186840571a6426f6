"""Maker of the flag tables in `sparkdash/engines/*/flags.json`, from the engines' source trees; nothing of them is run."""
