"""The client of REST servers, for commands and for drivers.

`client` sends requests. `url`, `token`, `tls`, `proxies` and `retries` are the values it is built from,
`responses` and `problem` are what it returns, `errors` are its exceptions. It works with any server: callers pass
the base URL and reword errors so that they name their own flags or settings.
"""
