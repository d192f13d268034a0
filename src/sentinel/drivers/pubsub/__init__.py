"""Google Pub/Sub: publishing, pulling with leases, and what lies behind its dead-letter topics."""
