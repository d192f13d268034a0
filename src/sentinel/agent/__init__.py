"""The process beside each proxy: it talks to the hub, applies configurations and reports what runs.

`applier.py` applies; the session with the hub hands it what the hub wants, and sends what it has to say.
"""
