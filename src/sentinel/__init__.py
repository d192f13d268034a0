"""Sentinel: the control plane that keeps a fleet in the state its owners declare."""

from sentinel.version import __version__

__all__ = ["__version__"]
