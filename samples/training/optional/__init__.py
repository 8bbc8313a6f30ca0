"""Optional parts of the engine: other loaders, CUDA graphs, and Ray."""
