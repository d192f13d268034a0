"""The protocol between the hub and its agents, by version."""
