"""`sentinel up`: the whole loop in one process."""
