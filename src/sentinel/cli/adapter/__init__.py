"""The `sentinel adapter` commands."""
