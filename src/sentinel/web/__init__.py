"""The server kit: what every REST server shares. It imports no component."""
