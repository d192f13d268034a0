"""Shipped for users' tests and ours: verified fakes, and time that a test drives."""
