"""Tensor names for caffe's blobs: a blob changed in place becomes several tensors; the last has the blob's name."""

from __future__ import annotations

from collections.abc import Sequence

from ._caffe_graph import CaffeGraph, CaffeLayer

__all__ = ["fuse_scales", "name_tensors", "unread"]

_ALIASES = ("Dropout", "Split")
"""Layers whose tops are the tensors that they read."""

_BEFORE = {"BatchNorm": "convolution", "Power": "unscaled", "Scale": "unscaled"}
"""What is called a tensor that such a layer changes in place, after the blob's name and a dot; else ``linear``."""


def fuse_scales(layers: Sequence[CaffeLayer]) -> list[CaffeLayer]:
    """Remove each Scale that follows a BatchNorm in place; it is `CaffeLayer.scale` of that layer then."""
    result: list[CaffeLayer] = []
    for layer in layers:
        before = result[-1] if result else None
        in_place = layer.type == "Scale" and len(layer.tops) == 1 and layer.bottom_names == layer.tops
        if in_place and before and before.type == "BatchNorm" and before.tops == layer.tops and before.scale is None:
            before.scale = layer
        else:
            result.append(layer)
    return result


def name_tensors(layers: Sequence[CaffeLayer], inputs: set[str], wanted: set[str], graph: CaffeGraph) -> None:
    """Set ``outputs`` and ``wanted`` of each layer; blobs in ``wanted`` are read by the user."""
    silenced = {name for layer in layers if layer.type == "Silence" for name in layer.bottom_names}
    read = wanted | {name for layer in layers if layer.type != "Silence" for name in layer.bottom_names}
    later: dict[str, CaffeLayer] = {}
    for layer in reversed(layers):
        if layer.type in _ALIASES:
            layer.outputs = list(layer.tops)
            continue
        for top in layer.tops:
            changes = later.get(top)
            if changes is not None:
                layer.outputs.append(graph.unique(f"{top}.{_BEFORE.get(changes.type, 'linear')}"))
            else:
                layer.outputs.append(graph.unique(f"{top}.{layer.type}") if top in inputs else top)
            layer.wanted.append(top in read or top not in silenced)
            later[top] = layer


def unread(layers: Sequence[CaffeLayer], blobs: Sequence[str]) -> list[str]:
    """The blobs that no layer reads after their last change, in the order in which they were first written."""
    waiting = dict.fromkeys(blobs, False)
    for layer in layers:
        for name in layer.bottom_names:
            if name not in layer.tops:
                waiting[name] = False
        for name in layer.tops:
            if name not in layer.bottom_names or layer.type not in _ALIASES:
                waiting[name] = True
    return [name for name, is_unread in waiting.items() if is_unread]
