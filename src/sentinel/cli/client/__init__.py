"""The commands that use a fleet API: get, create, apply, patch, delete, watch, why, pulse, pause, resume."""
