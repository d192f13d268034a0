"""Commands for a server's database."""
