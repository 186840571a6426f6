"""Capabilities of an engine, from its command line and model: tasks, vision, protocols, chat templates.

Pure.
"""
