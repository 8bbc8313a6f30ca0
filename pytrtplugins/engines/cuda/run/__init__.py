"""A plan on a device: launches, CUDA graphs, contexts, photos to boxes."""
