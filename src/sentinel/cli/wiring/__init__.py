"""From settings to parts, and one way to run them. The only place where parts are wired together."""
