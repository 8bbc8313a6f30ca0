"""Small models of every form of every operator, drawn from ONNX's schemas, and what engines make of them."""
