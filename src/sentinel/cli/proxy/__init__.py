"""`sentinel proxy`."""
