"""Running a plan, and comparing it with the original model."""
