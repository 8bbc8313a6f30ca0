"""Builds models with TensorRT for RTX, which needs no GPU, and counts what is built, refused, or computed in a low type."""
