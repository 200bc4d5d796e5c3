"""Generates the Python source of the stages of a partition, and modules that run it."""
