"""The hub in SQL: instances, configurations, metrics and events."""
