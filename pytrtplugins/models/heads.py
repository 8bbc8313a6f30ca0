"""Read the input size and the region and yolo layers of a detector from its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..engines.base.engine import Engine
from ..errors import BindingError, ModelError
from ..plugin.onnx_node import node_attributes
from ..utils.optional import onnx
from ..utils.text_formats import parse_json, shorten
from ..vision import Head

__all__ = ["read_heads", "read_input_size", "read_size"]

_METADATA = "darknet.net"
_TYPES = ("region", "yolo")


def read_heads(model: onnx.ModelProto) -> tuple[Head, ...]:
    """Return the region and yolo layers that write a model's outputs.

    They stand in the metadata that darknet2caffe writes (``darknet.net``), or as plugin nodes in the graph.

    Raises:
        ModelError: there is none, or one uses what cannot be decoded (a class tree, masks).
    """
    outputs = [value.name for value in model.graph.output]
    entries = [entry for entry in _metadata_entries(model) if entry["type"] in _TYPES]
    if not entries:
        entries = [
            {"output": node.output[0], "type": node.op_type.lower(), **node_attributes(node)}
            for node in model.graph.node
            if node.op_type.lower() in _TYPES and node.domain and node.output[0] in outputs
        ]
    heads = tuple(_parse_head(entry) for entry in entries if entry["output"] in outputs)
    if not heads:
        raise ModelError(
            f"model {model.graph.name!r}: no output comes from a region or yolo layer (outputs: {', '.join(outputs) or 'none'}), "
            "so there are no boxes to decode.\n"
            "Causes: (1) it is not a detector; (2) it was not converted by darknet2caffe; (3) its metadata was removed.\n"
            "Do: darknet2caffe NETWORK.cfg NETWORK.weights -o NETWORK.onnx; a network that is no detector runs on arrays: "
            "pytrt run MODEL --input NAME=FILE.npy",
            outputs=tuple(outputs),
        )
    if len({head.classes for head in heads}) > 1:
        raise ModelError(
            f"model {model.graph.name!r}: its heads disagree on the classes: {[head.classes for head in heads]}."
        )
    return heads


def read_input_size(model: onnx.ModelProto) -> tuple[int, int] | None:
    """Return (width, height) of the network's input from its metadata; None if it is not there."""
    net = _metadata(model)
    if not {"width", "height"} <= net.keys():
        return None
    if not all(type(net[key]) is int and 0 < net[key] < 2**31 for key in ("width", "height")):
        raise ModelError(
            f"model {model.graph.name[:80]!r}: its metadata {_METADATA!r} has a wrong size: "
            f"{shorten(net['width'])} x {shorten(net['height'])}."
        )
    return net["width"], net["height"]


def read_size(engine: Engine) -> tuple[int, int]:
    """Return (width, height) of the engine's input, which must be one batch of RGB images."""
    if len(engine.inputs) != 1:
        raise BindingError(f"Yolov2: expected an engine with one input, found {[desc.name for desc in engine.inputs]}.")
    desc = engine.inputs[0]
    dims = list(desc.dims)
    if len(dims) != 4 or dims[1] != 3:
        raise BindingError(f"Yolov2: input {desc.name!r}: expected dims (N, 3, H, W), found {desc.dims}.")
    width, height = read_input_size(engine.model_without_weights) or (0, 0)
    height, width = (dims[2] if isinstance(dims[2], int) else height), (dims[3] if isinstance(dims[3], int) else width)
    if not (width and height):
        raise BindingError(
            f"Yolov2: input {desc.name!r}: its height and width are free and not in the model's metadata: {desc.dims}."
        )
    return width, height


def _metadata(model: onnx.ModelProto) -> dict[str, Any]:
    for prop in model.metadata_props:
        if prop.key == _METADATA:
            value = parse_json(prop.value, f"model {model.graph.name!r}: its metadata {_METADATA!r}", error=ModelError)
            if not isinstance(value, dict):
                raise ModelError(f"model {model.graph.name!r}: its metadata {_METADATA!r} is not a JSON object.")
            return value
    return {}


def _metadata_entries(model: onnx.ModelProto) -> list[dict[str, Any]]:
    """Return the entries of the heads in the metadata."""
    entries = _metadata(model).get("heads", [])
    is_valid = isinstance(entries, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("type"), str) and isinstance(entry.get("output"), str)
        for entry in entries
    )
    if not is_valid:
        raise ModelError(
            f"model {model.graph.name[:80]!r}: its metadata {_METADATA!r} names heads without output and type: {shorten(entries)}."
        )
    return list(entries)


def _parse_head(entry: Mapping[str, Any]) -> Head:
    where = f"head {shorten(entry['output'])} ({entry['type']})"
    if entry.get("tree"):
        raise ModelError(
            f"{where}: it has a tree of classes (yolo9000), which is not decoded to boxes. Read the raw output instead."
        )
    if entry.get("coords", 4) != 4:
        raise ModelError(
            f"{where}: expected 4 coordinates a box, found {shorten(entry['coords'])}: boxes with masks are not decoded."
        )
    try:
        return Head(
            output=str(entry["output"]),
            type=str(entry["type"]),
            anchors=tuple(float(value) for value in entry["anchors"]),
            classes=int(entry["classes"]),
            mask=tuple(int(value) for value in entry.get("mask") or ()),
            background=bool(entry.get("background", False)),
            new_coords=bool(entry.get("new_coords", False)),
            distance_power=_distance_power(entry.get("distance_power")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{where}: its fields are incomplete or wrong ({shorten(error)}).") from error


def _distance_power(value: Any) -> float | None:
    if value is not None and not 0 <= float(value) < math.inf:
        raise ValueError(f"distance_power: {value}")
    return None if value is None else float(value)
