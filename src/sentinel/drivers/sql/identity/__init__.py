"""Users, tokens and sign-ins in SQL."""
