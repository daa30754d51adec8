"""Django's PostgreSQL engine with a pool that gets over a restarted server at once."""
