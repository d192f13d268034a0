"""Commands that run a pulse, or show what it would do."""
