"""The hub in SQL: instances, configurations, metrics, events, and the key that signs sessions."""
