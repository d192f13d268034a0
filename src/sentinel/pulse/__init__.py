"""The pulse: polls the fleet, decides which resources are due, and publishes an event for each."""
