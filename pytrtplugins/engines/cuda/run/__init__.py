"""Run a plan on a device: launches, CUDA graphs, contexts, detection."""
