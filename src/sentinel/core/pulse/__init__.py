"""Decisions of the pulse: which resources are due, and what their events contain."""
