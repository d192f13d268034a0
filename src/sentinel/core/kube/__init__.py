"""What operators decide about Kubernetes objects: their metadata, their conditions, and who holds a Lease."""
