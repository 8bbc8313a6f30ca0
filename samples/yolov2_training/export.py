"""Writing a trained network as darknet's .cfg, .weights and .names."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pytrtplugins.utils.atomic import atomic_path, write_atomic

from .network import ANCHORS, Convolution, Layer, Maxpool, Reorg, Route, Yolov2

__all__ = ["write_cfg", "write_darknet", "write_weights"]

DARKNET_EPSILON = 1e-6  # darknet's CPU normalizes with (x - mean) / (sqrt(variance) + 1e-6): src/blas.c normalize_cpu

NET = """\
[net]
# Written by samples/train_yolov2.py
batch=1
subdivisions=1
width={width}
height={height}
channels=3
momentum=0.9
decay=0.0005
angle=0
saturation=1.5
exposure=1.5
hue=.1
learning_rate=0.001
burn_in=1000
max_batches=80200
policy=steps
steps=40000,60000
scales=.1,.1
"""

REGION = """\
[region]
anchors={anchors}
bias_match=1
classes={classes}
coords=4
num={num}
softmax=1
jitter=.3
rescore=1
object_scale=5
noobject_scale=1
class_scale=1
coord_scale=1
absolute=1
thresh=.6
random=1
"""


def write_darknet(
    prefix: Path, network: Yolov2, anchors: Tensor, classes: Sequence[str], *, size: int, seen: int = 0
) -> None:
    """Write ``prefix``.cfg, .weights and .names.

    Args:
        prefix: Path without suffix.
        network: The network; its batch norms' running statistics are used.
        anchors: (5, 2) widths and heights in cells.
        classes: Names, in the order of class ids.
        size: Width and height of the input that the network was trained with.
        seen: Images that the training has seen, for the file's header.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    write_cfg(Path(f"{prefix}.cfg"), network.layers, anchors, len(classes), size=size)
    write_weights(Path(f"{prefix}.weights"), network, seen=seen)
    write_atomic(f"{prefix}.names", "".join(f"{name}\n" for name in classes).encode())


def write_cfg(path: Path, layers: Sequence[Layer], anchors: Tensor, classes: int, *, size: int) -> None:
    """Write the .cfg; the training keys are darknet's usual ones, so that ``darknet detector train`` takes it too."""
    shapes = ", ".join(f"{value:.6g}" for value in anchors.flatten().tolist())
    parts = [NET.format(width=size, height=size), *(_section(layer) for layer in layers)]
    parts.append(REGION.format(anchors=shapes, classes=classes, num=ANCHORS))
    write_atomic(path, "\n".join(parts).encode())


def _section(layer: Layer) -> str:
    match layer:
        case Convolution(filters, size, last):
            norm, activation = ("", "linear") if last else ("batch_normalize=1\n", "leaky")
            return f"[convolutional]\n{norm}filters={filters}\nsize={size}\nstride=1\npad=1\nactivation={activation}\n"
        case Maxpool():
            return "[maxpool]\nsize=2\nstride=2\n"
        case Reorg():
            return "[reorg]\nstride=2\n"
        case Route(layers):
            return f"[route]\nlayers={','.join(map(str, layers))}\n"


def write_weights(path: Path, network: Yolov2, *, seen: int = 0) -> None:
    """Write the .weights: a 20-byte header (version 0.2.0 and images seen), then each convolution's float32 arrays."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<iiiQ", 0, 2, 0, seen))
        for convolution, norm in network.convolutions():
            for tensor in _arrays(convolution, norm):
                file.write(tensor.detach().double().cpu().numpy().astype(np.dtype("<f4")).tobytes())


def _arrays(convolution: nn.Conv2d, norm: nn.BatchNorm2d | None) -> list[Tensor]:
    """Darknet's order: biases, then (normalized) scales, means, variances, then weights."""
    if norm is None:
        assert convolution.bias is not None
        return [convolution.bias, convolution.weight]
    # PyTorch divides by sqrt(variance + eps): give darknet the variance with which its own formula divides by the same.
    root = (norm.running_var.double() + norm.eps).sqrt() - DARKNET_EPSILON  # type: ignore[union-attr]
    return [norm.bias, norm.weight, norm.running_mean, torch.square(root), convolution.weight]  # type: ignore[list-item]
