"""`sentinel operator`."""
