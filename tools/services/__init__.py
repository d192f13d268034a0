"""The services that tests and benchmarks need, on loopback."""
