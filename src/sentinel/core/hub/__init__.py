"""What the hub decides: the states of instances, their sync with what is assigned, and their sessions."""
