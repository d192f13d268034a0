"""Users, tokens and sign-ins, served by every REST server: `auth`, `users` and `tokens` under `/api/v1`."""
