"""What an agent decides: how a configuration is applied to its proxy, and what the hub is told about it."""
