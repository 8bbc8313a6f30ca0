"""Make a plan of a lowered model: tensors, layouts, memory, the order of steps on streams."""
