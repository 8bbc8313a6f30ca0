"""Commands of ``pytrt`` for operations."""
