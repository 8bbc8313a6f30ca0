"""Reads the list of layers that TensorRT's builder writes into its log: "Engine Layer Information"."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Layer", "Tensor", "has_layers", "read_layers"]

_BEGIN = "Layers:\nName: "
_FIELD = re.compile(r", (LayerType|Inputs|Constants|Outputs|TacticName|StreamId|Metadata): ")
_TENSOR = re.compile(r"\{ Name: (.*?), Dimensions: \[([\d,-]*)\], .*?Datatype: (\w+), Format: \((\w+)\)")
_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")


@dataclass(frozen=True)
class Tensor:
    """A tensor that a layer reads or writes.

    Attributes:
        name: TensorRT's name.
        dims: Its dims.
        dtype: Its element type, as TensorRT writes it: ``"Float"``, ``"Half"``, ``"BFloat16"``, ``"Int8"``, ``"FP8"`` ...
        layout: ``"Linear"``, ``"NHWC"`` or another name of TensorRT's.
    """

    name: str
    dims: tuple[int, ...]
    dtype: str
    layout: str


@dataclass(frozen=True)
class Layer:
    """A layer of a serialized engine.

    Attributes:
        name: TensorRT's name.
        kind: TensorRT's layer type: ``"correlation"`` (a convolution), ``"gemm"``, ``"kgen"`` (a generated kernel), ``"custom_layer"``
            (a plugin) ...
        inputs: Tensors that it reads.
        constants: Weights that it reads.
        outputs: Tensors that it writes.
        nodes: Names of the ONNX nodes that it computes.
        tactic: Name of its kernel.
    """

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    nodes: tuple[str, ...]
    tactic: str = ""


def has_layers(message: str) -> bool:
    """Return whether a message of TensorRT's log is a list of layers."""
    return _BEGIN in message


def read_layers(message: str) -> tuple[Layer, ...]:
    """Read a message of TensorRT's log that `has_layers`; the builder must have profiling verbosity DETAILED."""
    lines = message.partition("Layers:\n")[2].split("\n")
    return tuple(_read_layer(line.removeprefix("Name: ")) for line in lines if line.startswith("Name: "))


def _read_layer(line: str) -> Layer:
    name, *parts = _FIELD.split(line)
    fields = dict(zip(parts[::2], parts[1::2], strict=True))
    inputs, constants, outputs = (_read_tensors(fields.get(field, "")) for field in ("Inputs", "Constants", "Outputs"))
    return Layer(
        name, fields["LayerType"], inputs, constants, outputs, tuple(_NODE.findall(fields.get("Metadata", "")))
    )


def _read_tensors(text: str) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, tuple(int(dim) for dim in dims.split(",") if dim), dtype, layout)
        for name, dims, dtype, layout in _TENSOR.findall(text)
    )
