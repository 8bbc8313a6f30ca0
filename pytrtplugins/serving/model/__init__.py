"""Models to serve: the user's class, its tensors, and limits."""
