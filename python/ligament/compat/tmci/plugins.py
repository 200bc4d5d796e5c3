"""tmci.plugins."""

from ligament.plugins import load

__all__ = ["load"]
