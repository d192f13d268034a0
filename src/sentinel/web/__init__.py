"""What every REST server of the product shares; it knows no component."""
