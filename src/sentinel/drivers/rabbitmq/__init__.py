"""RabbitMQ: publishing with confirms, subscribing, and dead letters."""
