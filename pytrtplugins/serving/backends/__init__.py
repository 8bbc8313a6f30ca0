"""Backends of the network code: models in this process or in engine processes."""
