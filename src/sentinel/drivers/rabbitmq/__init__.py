"""RabbitMQ: publishing with confirms, subscribing, and what lies in its dead-letter queues."""
