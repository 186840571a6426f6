"""Capabilities of an engine as its command line and model tell them: tasks, vision, protocols, chat templates."""
