"""TensorRT 10 and 11."""
