"""The proxy's configuration: what may stand in it, what it means, and what is wrong with it."""
