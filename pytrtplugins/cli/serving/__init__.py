"""The commands that serve models."""
