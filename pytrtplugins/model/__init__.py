"""Plugins into an existing network: in the place of a node, or behind a tensor."""

from __future__ import annotations

from .editor import Graph, NodeInfo, load_onnx
from .files import read_onnx, write_onnx

__all__ = ["Graph", "NodeInfo", "load_onnx", "read_onnx", "write_onnx"]
