"""Sentinel: the control plane that keeps a fleet true to what its owners asked for."""

from sentinel.version import __version__

__all__ = ["__version__"]
