"""A custom layer as a Python class: its fields, its bytes, its node in ONNX, and how an engine runs it."""

from __future__ import annotations

from .base import Plugin
from .decorator import plugin
from .onnx_node import as_node, from_node
from .registry import lookup, registered

__all__ = ["Plugin", "as_node", "from_node", "lookup", "plugin", "registered"]
