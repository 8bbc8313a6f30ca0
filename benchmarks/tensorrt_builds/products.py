"""Counts the convolutions and matrix products of a model: all, those behind Q/DQ nodes, and those that TensorRT computes in a low type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx

from .layer_list import Layer

__all__ = ["LOW_TYPES", "Products", "count_products"]

LOW_TYPES = {"fp16": "Half", "bf16": "BFloat16", "int8": "Int8", "fp8": "FP8"}
"""The low type of each precision, as TensorRT's list of layers writes it."""
_CODES = ("Int8", "FP8")
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_MOVES_VALUES = (
    *("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "Concat"),
    *("Identity", "Expand", "DepthToSpace", "SpaceToDepth"),
)
"""Operators that give values of their first input (Concat: of all inputs) in another order: Q/DQ in front of them holds behind them."""
_NOT_A_PRODUCT = ("kgen", "signal", "wait", "maxpool", "avgpool")
"""Layer types that prepare or finish what another layer computes."""


@dataclass(frozen=True)
class Products:
    """Convolutions and matrix products of a model, counted.

    Attributes:
        all: Those of the model that TensorRT's parser is given.
        intended: Those whose data and weights both come from DequantizeLinear; in a model of a float type, all.
        low: Those of the intended that TensorRT's layers compute from inputs of the low type.
        missing: Names of the intended nodes that TensorRT computes in another type.
    """

    all: int
    intended: int
    low: int
    missing: tuple[str, ...]


def count_products(model: onnx.ModelProto, layers: Iterable[Layer], precision: str) -> Products:
    """Count the convolutions and matrix products of a model."""
    nodes = [node for node in model.graph.node if node.op_type in _PRODUCTS and node.domain in ("", "ai.onnx")]
    by_output = {name: node for node in model.graph.node for name in node.output}
    intended = nodes
    if precision in ("int8", "fp8"):
        intended = [node for node in nodes if all(_is_dequantized(name, by_output) for name in node.input[:2])]
    by_node: dict[str, list[Layer]] = {}
    for layer in layers:
        for name in layer.nodes:
            by_node.setdefault(name, []).append(layer)
    missing = [node.name for node in intended if not _takes(by_node.get(node.name, []), LOW_TYPES[precision])]
    return Products(len(nodes), len(intended), len(intended) - len(missing), tuple(missing))


def _takes(layers: list[Layer], dtype: str) -> bool:
    """Return whether the layer of a product, among the layers that name its node, computes in a type.

    It is a layer whose data are of the type. A generated kernel may convert float data itself: there the weights count, unless they are
    codes, which such a kernel only dequantizes.
    """
    products = [layer for layer in layers if layer.kind not in _NOT_A_PRODUCT]
    if products or dtype in _CODES:
        return any(tensor.dtype == dtype for layer in products or layers for tensor in layer.inputs[:1])
    return any(tensor.dtype == dtype for layer in layers for tensor in (*layer.inputs[:1], *layer.constants))


def _is_dequantized(tensor: str, by_output: dict[str, onnx.NodeProto]) -> bool:
    node = by_output.get(tensor)
    if node is None:
        return False
    if node.op_type == "DequantizeLinear":
        return True
    if node.op_type not in _MOVES_VALUES:
        return False
    sources = node.input if node.op_type == "Concat" else node.input[:1]
    return all(_is_dequantized(name, by_output) for name in sources)
