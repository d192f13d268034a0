"""Builds parts from settings and runs them. The only place where parts are wired together."""
