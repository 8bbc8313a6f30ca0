"""The commands of ``pytrt`` for this wing."""
