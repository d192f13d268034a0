"""The command that serves the fleet API."""
