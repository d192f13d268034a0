"""Drivers for the HyperFleet API: reading a fleet for pulses, and reading and reporting for adapters."""
