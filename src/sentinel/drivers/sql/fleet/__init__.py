"""The fleet store over SQL."""
