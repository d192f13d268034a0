"""Drift: the sidecar that notices unauthorised changes, and the operator that corrects them."""
