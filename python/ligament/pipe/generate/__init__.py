"""From a partition to the Python source of its stages, and to modules that run."""
