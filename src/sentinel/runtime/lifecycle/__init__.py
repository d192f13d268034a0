"""The lifecycle of a service: parts start in order, stop on a signal, drain, and close in reverse order."""
