"""Version 1 of the protocol between the hub and its agents: proto/sentinel/hub/v1/fleet.proto."""
