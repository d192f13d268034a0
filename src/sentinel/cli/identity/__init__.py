"""Commands about who may use a server."""
