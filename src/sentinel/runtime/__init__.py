"""The shell every service shares: lifecycle, settings, telemetry, probes, backoff."""
