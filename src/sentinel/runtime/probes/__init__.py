"""Health, readiness and metrics of a process, and the pages that show them."""
