"""Bearer tokens and who they belong to: a file of hashed tokens, and JSON web tokens checked with a key."""
