"""The one client of REST servers, for commands that a person runs and for drivers.

`client` sends requests; `url`, `token`, `proxies` and `retries` are the values it is built from; `responses` is
what came, `problem` reads problem+json, `errors` are the ways in which a request fails. It knows no server in
particular: callers bring the base URL, and reword errors so that they name their own flags or settings.
"""
