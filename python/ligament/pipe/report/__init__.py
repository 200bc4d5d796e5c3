"""Reports and drawings of a plan."""
