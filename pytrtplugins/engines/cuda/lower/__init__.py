"""From an ONNX model to the nodes that the planner knows: fusions, scales of INT8."""
