"""Implementations of the ports, one file per technology."""
