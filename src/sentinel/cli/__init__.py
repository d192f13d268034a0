"""The command tree, and the only place where parts are wired together."""
