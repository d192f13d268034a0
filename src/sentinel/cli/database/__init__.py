"""Commands about the database of a server."""
