"""From nodes to a plan: tensors, layouts, memory, the order on streams."""
