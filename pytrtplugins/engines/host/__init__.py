"""What the engines for CPUs share: INT8 by the clock, the processor's features, submodels that onnxruntime runs."""
