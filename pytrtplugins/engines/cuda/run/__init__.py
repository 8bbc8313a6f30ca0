"""A plan on a device: launches, CUDA graphs, contexts, images to boxes."""
