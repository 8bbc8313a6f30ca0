"""Who races."""

from __future__ import annotations

from ..pages.runners import DARKNET, NAME, ONNXRUNTIME, TORCH_GRAPH, TORCH_TUNED
from .darknet_peer import darknet, darknet_pinned
from .onnxruntime_peer import onnxruntime
from .ours import ours, ours_pinned
from .running import COMPILED, MORE, STEPS, Runner
from .torch_peer import pytorch, pytorch_pinned

BASELINE = Runner(NAME, "FP16", ours("fp16"))
RUNNERS = (
    BASELINE,
    Runner(NAME, "INT8", ours("int8")),
    Runner(NAME, "FP8", ours("fp8"), stage=MORE),
    Runner(DARKNET, "TF32", darknet, max_batch=8),
    Runner(TORCH_GRAPH, "FP16", pytorch("FP16", "graph")),
    Runner("PyTorch", "FP16", pytorch("FP16", "eager"), stage=MORE),
    Runner(ONNXRUNTIME, "FP16", onnxruntime("FP16"), stage=STEPS),
    Runner(NAME, "FP16", ours_pinned("fp16"), pinned=True),
    Runner(NAME, "INT8", ours_pinned("int8"), pinned=True),
    Runner(DARKNET, "TF32", darknet_pinned, max_batch=8, pinned=True),
    Runner(TORCH_GRAPH, "FP16", pytorch_pinned("FP16"), pinned=True),
)
SINGLES = (
    Runner(NAME, "TF32", ours("tf32")),
    Runner(TORCH_GRAPH, "TF32", pytorch("TF32", "graph")),
    Runner(ONNXRUNTIME, "TF32", onnxruntime("TF32"), stage=STEPS),
    Runner(NAME, "FP32", ours("fp32")),
    Runner(TORCH_GRAPH, "FP32", pytorch("FP32", "graph")),
    Runner(ONNXRUNTIME, "FP32", onnxruntime("FP32"), stage=STEPS),
    Runner(TORCH_TUNED, "FP16", pytorch("FP16", "max-autotune"), stage=COMPILED),
)
"""Raced with batch 1 only."""
