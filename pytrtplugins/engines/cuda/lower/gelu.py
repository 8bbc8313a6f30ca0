"""GELU as models write it, with several operators → one node, which one kernel runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from ....model.ir import array_of, is_op, only_read_by, swap
from ....utils.optional import ir
from .rewrite import DOMAIN, Rewrite

__all__ = ["FuseGelu"]

_CLOSE = 1e-3
"""How far a constant may be from the formula's, relatively: models write it with three digits and more, or in half."""
_CUBIC, _SCALE = 0.044715, math.sqrt(2 / math.pi)


class FuseGelu(Rewrite["tuple[str, ir.Value, list[ir.Node]]"]):
    """x / 2 * (1 + erf(x / sqrt(2))), or ``Gelu`` → ``Gelu``; x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) → ``GeluTanh``.

    Both are of this engine's domain. The factors may stand in any order.

    What does not match: (1) a part that something else reads too; (2) parts of two tensors; (3) other constants.
    """

    name: ClassVar[str] = "gelu"
    needs: ClassVar[tuple[str, ...]] = ("Gelu", "Erf", "Tanh")

    def match(self, node: ir.Node) -> tuple[str, ir.Value, list[ir.Node]] | None:
        """The kind, x, and the nodes from x to the result."""
        if is_op(node, "Gelu") and node.inputs[0] is not None:
            tanh = node.attributes.get_string("approximate", "none") == "tanh"
            return "GeluTanh" if tanh else "Gelu", node.inputs[0], [node]
        product = _product(node.outputs[0], None) if is_op(node, "Mul") else None
        if product is None or len(product.values) != 2 or not _is_close(product.factor, 0.5):  # case 3
            return None
        for x, gate in (product.values, product.values[::-1]):
            found = _gate(x, gate, product.readers[id(gate)])
            if found is not None:
                return found[0], x, [*found[1], *product.nodes[::-1]]
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[str, ir.Value, list[ir.Node]]) -> None:
        """Put one node in their place."""
        kind, x, nodes = match
        gelu = ir.node(kind, [x], domain=DOMAIN, name=node.name)
        graph.insert_before(node, gelu)
        swap(graph, nodes, gelu.outputs[0])


@dataclass
class _Product:
    """A product written out: a number, tensors, the nodes from the last to the first, and which node reads a tensor last."""

    factor: float = 1.0
    values: list[ir.Value] = field(default_factory=list)
    nodes: list[ir.Node] = field(default_factory=list)
    readers: dict[int, ir.Node] = field(default_factory=dict)


def _product(value: ir.Value, reader: ir.Node | None) -> _Product:
    """What a tensor is the product of; products that something else reads too are taken as they are."""
    found = _Product()
    waiting = [(value, reader, 1)]
    while waiting:
        value, reader, power = waiting.pop()
        number, node = _number(value), value.producer()
        if number is not None and (number or power > 0):
            found.factor *= number**power
        elif power > 0 and node is not None and (reader is None or only_read_by(node, reader)) and _multiplies(node):
            found.nodes.append(node)
            left, right = node.inputs
            assert left is not None
            assert right is not None
            waiting += [(right, node, -1 if node.op_type == "Div" else 1), (left, node, 1)]
        else:
            found.values.append(value)
            found.readers[id(value)] = node if reader is None and node is not None else reader  # type: ignore[assignment]
    return found


def _multiplies(node: ir.Node) -> bool:
    """Whether a node is a product, or a quotient by a number."""
    return is_op(node, "Mul") or (is_op(node, "Div") and _number(node.inputs[1]) is not None)


def _gate(x: ir.Value, gate: ir.Value, reader: ir.Node) -> tuple[str, list[ir.Node]] | None:
    """The kind of 1 + erf(…) or 1 + tanh(…), and its nodes."""
    add = gate.producer()
    if add is None or not is_op(add, "Add") or not only_read_by(add, reader):  # case 1
        return None
    inner = [value for value in add.inputs if value is not None and _number(value) is None]
    ones = [number for number in map(_number, add.inputs) if number is not None]
    bent = inner[0].producer() if len(inner) == 1 and ones == [1.0] else None
    if bent is None or bent.op_type not in ("Erf", "Tanh") or not only_read_by(bent, add) or bent.inputs[0] is None:
        return None
    product = _product(bent.inputs[0], bent)
    if len(product.values) != 1:
        return None
    nodes = [*product.nodes[::-1], bent, add]
    if bent.op_type == "Erf":
        fits = product.values[0] is x and _is_close(product.factor, math.sqrt(0.5))  # cases 2 and 3
        return ("Gelu", nodes) if fits else None
    bend = product.values[0]
    cubic = _cubic(x, bend, product.readers[id(bend)]) if _is_close(product.factor, _SCALE) else None
    return None if cubic is None else ("GeluTanh", [*cubic, *nodes])


def _cubic(x: ir.Value, value: ir.Value, reader: ir.Node) -> list[ir.Node] | None:
    """The nodes of x + 0.044715 x^3."""
    add = value.producer()
    if add is None or not is_op(add, "Add") or not only_read_by(add, reader):
        return None
    left, right = add.inputs
    other = right if left is x else left if right is x else None
    if other is None:
        return None
    product = _product(other, add)
    if not _is_close(product.factor, _CUBIC):
        return None
    nodes = [*product.nodes[::-1], add]
    if len(product.values) == 3 and all(each is x for each in product.values):
        return nodes
    power = product.values[0].producer() if len(product.values) == 1 else None
    if power is None or not is_op(power, "Pow") or not only_read_by(power, product.readers[id(product.values[0])]):
        return None
    return [power, *nodes] if power.inputs[0] is x and _number(power.inputs[1]) == 3.0 else None


def _number(value: ir.Value | None) -> float | None:
    """A constant of one value."""
    array = array_of(value)
    return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind == "f" else None


def _is_close(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= _CLOSE * wanted
