"""The operator: a pulse for each SentinelConfig."""
