"""The gRPC server for agents: messages to values and back, calls, and the listener."""
