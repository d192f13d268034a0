"""The decisions of the SentinelConfig operator: what runs, what a status says, what a new leader repeats."""
