"""The hub: registers agents, versions configurations, and tells each instance what it should run."""
