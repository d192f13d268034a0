"""Google Pub/Sub: publishing, pulling with leases, and dead letters."""
