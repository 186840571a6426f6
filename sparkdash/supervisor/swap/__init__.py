"""Swaps carried out: engines are drained, stopped, started, loaded and warmed up, with progress and time left."""
