"""Parts of the engine that a run on one machine works without: other loaders, CUDA graphs, and Ray."""
