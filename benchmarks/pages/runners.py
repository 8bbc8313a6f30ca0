"""Names of runners, as records and pages have them."""

NAME, TORCH_GRAPH, TORCH_EAGER = "pytrtplugins", "PyTorch, CUDA graph", "PyTorch, eager"
TORCH_COMPILED, TORCH_TUNED = "PyTorch, torch.compile", "PyTorch, max-autotune"
ONNXRUNTIME, DARKNET = "onnxruntime, CUDA graph", "darknet"
