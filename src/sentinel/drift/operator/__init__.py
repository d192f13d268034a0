"""What an operator needs to answer drift: steps, triggers, restoring; and a reference operator."""
