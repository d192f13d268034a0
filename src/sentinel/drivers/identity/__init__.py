"""Sources of identities: a file of hashed tokens, and JSON web tokens verified with a key."""
