"""Detect attention with constant keys, which OpenVINO's fused bfloat16 kernel computes wrongly."""

from __future__ import annotations

from typing import Any

__all__ = ["has_constant_keys"]


def has_constant_keys(network: Any) -> bool:
    """Whether an ``openvino.Model`` has a Softmax of products with constants of three axes or more.

    OpenVINO 2026.4 computes ``Softmax(q · keys) · values`` in one kernel, which reads keys that are constants in another order than
    they have, and memory behind them, where the CPU computes in bfloat16.
    """
    nodes = network.get_ordered_ops()
    if not any(node.get_type_name() == "Softmax" for node in nodes):
        return False
    constant_names, products = set[str](), set[str]()
    for node in nodes:
        sources = [value.get_node().get_name() for value in node.input_values()]
        if node.get_type_name() == "Constant" or (sources and constant_names.issuperset(sources)):
            constant_names.add(node.get_name())
        elif node.get_type_name() == "MatMul":
            rank = node.input_value(1).get_partial_shape().rank
            if sources[1] in constant_names and (rank.is_dynamic or rank.get_length() > 2):
                products.add(node.get_name())
        elif not products.isdisjoint(sources):
            if node.get_type_name() == "Softmax":
                return True
            products.add(node.get_name())
    return False
