"""Drift: what another actor does to objects that an operator manages."""
