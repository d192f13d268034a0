"""Controls a proxy on this machine: its file, its process, and its health."""
