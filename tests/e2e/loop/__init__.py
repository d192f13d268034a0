"""A package, so that what is started for its tests ends with them."""
