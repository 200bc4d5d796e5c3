"""tmci: as its users know it."""

from . import checkpoint, plugins

__all__ = ["checkpoint", "plugins"]
