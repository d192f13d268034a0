"""`sentinel agent`."""
