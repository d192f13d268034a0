"""The client of REST servers, for commands and for drivers."""
