"""Commands for identities and their tokens."""
