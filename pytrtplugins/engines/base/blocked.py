"""Refuse files of onnxruntime's optimizer whose weights have the layout of one CPU."""

from __future__ import annotations

from ...errors import BuildError
from ...model.proto import node_name
from ...utils.optional import onnx
from ...validation.dataflow import walk

__all__ = ["check_layouts"]

_DOMAIN = "com.microsoft.nchwc"


def check_layouts(model: onnx.ModelProto, engine: str, quantizes: bool = False) -> None:
    """Require that no node reads images or weights in blocks of channels, for an engine that does not run them.

    Args:
        model: The model, as its file has it or prepared.
        engine: Name of the engine.
        quantizes: Whether the engine runs such nodes, but not in codes that are to be made of their weights.
    """
    node = next((node for node in walk(model.graph.node) if node.domain == _DOMAIN), None)
    if node is None:
        return
    lacks = "cannot quantize" if quantizes else "does not have"
    precision = ' and precision="fp32"' if quantizes else ""
    raise BuildError(
        f"engine {engine!r} {lacks} the operator {_DOMAIN}::{node.op_type} (node {node_name(node)!r}): onnxruntime's optimizer wrote "
        "the file at level ORT_ENABLE_ALL, with weights in blocks of channels as wide as the registers of the CPU that it ran on; "
        "only onnxruntime reads them, on such a CPU.\n"
        f'Do: optimize with ORT_ENABLE_EXTENDED, or build with engine="onnxruntime"{precision}',
        engine=engine,
        op=node.op_type,
        node=node.name,
    )
