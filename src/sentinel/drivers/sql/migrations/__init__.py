"""One module per revision. A released revision never changes."""
