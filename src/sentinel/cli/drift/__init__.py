"""`sentinel drift`."""
