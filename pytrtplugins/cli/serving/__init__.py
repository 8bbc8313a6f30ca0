"""Commands for serving models."""
