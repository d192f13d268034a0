"""Implementations of the ports, a module or a package per technology."""
