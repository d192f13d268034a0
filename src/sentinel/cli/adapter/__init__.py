"""Commands about adapters."""
