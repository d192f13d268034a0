"""The hub over gRPC: `ports.hub_client`."""
