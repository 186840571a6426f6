"""Hooks: the owner's commands and webhooks, run for events of the box.

Owns: which facts are events (`events`), how a hook is run (`run`), and how many at a time (`dispatcher`). Must not know
how engines start. Rule: nothing waits for a hook, and a hook that fails is told of once.
"""

from sparkdash.hooks.dispatcher import HookDispatcher

__all__ = ["HookDispatcher"]
