"""Common parts of the engines for CPUs: choice of INT8 or float32 by timing, CPU features, submodels for onnxruntime."""
