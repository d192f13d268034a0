"""The hub: registers proxy agents, versions their configuration, and rolls it out."""
