"""Put plugins into an existing ONNX network: replace a node, or insert one after a tensor."""

from __future__ import annotations

from .editor import Graph, NodeInfo, load_onnx
from .files import read_onnx, write_onnx

__all__ = ["Graph", "NodeInfo", "load_onnx", "read_onnx", "write_onnx"]
