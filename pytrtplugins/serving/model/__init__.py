"""What is served: what the user writes, its tensors, and its limits."""
