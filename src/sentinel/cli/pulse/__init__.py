"""Commands that run a pulse or look at what it would do."""
