"""Convert MXNet networks from ``symbol.json`` (operators) and ``.params`` (weights) to ONNX."""

from __future__ import annotations

from .convert import from_mxnet
from .params import read_params
from .symbol import Node, Symbol, read_symbol

__all__ = ["Node", "Symbol", "from_mxnet", "read_params", "read_symbol"]
