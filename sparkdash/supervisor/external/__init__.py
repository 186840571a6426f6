"""Engines that this daemon did not start: attached servers, remote services, adopted engines, foreign containers."""
