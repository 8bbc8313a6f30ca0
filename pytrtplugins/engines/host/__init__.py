"""What the engines for CPUs share: INT8 by the clock, the processor's features, pieces that onnxruntime runs."""
