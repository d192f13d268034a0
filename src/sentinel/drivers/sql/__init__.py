"""The database behind the servers: SQLite embedded, PostgreSQL in production, from one source."""
