"""Swaps carried out, and engines that this daemon did not start: adopted, attached, or foreign."""
