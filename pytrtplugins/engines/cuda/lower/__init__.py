"""Lower an ONNX model to the nodes that the planner knows: fusions, INT8 scales, operators rewritten as others."""
