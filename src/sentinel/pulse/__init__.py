"""The pulse: poll the fleet, decide who is due, publish an event for each."""
