"""Code that every service shares: lifecycle, settings, logging, probes, workqueue, backoff."""
