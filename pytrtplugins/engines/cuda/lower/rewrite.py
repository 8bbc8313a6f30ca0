"""A pattern of nodes → fewer nodes, wherever it matches: what the fusions of this engine are made of."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

from ....model.ir import array_of, dims_of, dtype_of, is_op, only_read_by, operand, remove_unused
from ....model.proto import node_name
from ....passes import Pass, PassResult
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override
from ..device.layout import CODES
from ..naming import naming
from .data_dependent import data_dependent_values

__all__ = [
    "DOMAIN",
    "Rewrite",
    "codes_scale",
    "codes_type",
    "convolution_before",
    "has_residual",
    "has_rows",
    "is_around_zero",
    "is_float",
    "scale_of",
    "weight_dims",
]

DOMAIN = "pytrtplugins.cuda"
"""Of the fused nodes. ``Conv`` reads x, weights, bias, and optionally a residual and the weights' scales; see `FuseConvolutions`."""
Match = TypeVar("Match")


class Rewrite(Pass, Generic[Match]):
    """Looks at each node once, in the graph's order, and rewrites those where the pattern matches.

    What hangs on values stays as it is, since it runs node by node.

    A subclass says in its docstring which cases do not match, by number, and names the number where it tells them apart.

    Attributes:
        needs: Types of operators of which every match has one at least: a model without them is left alone at once.
        leaves_unused: Whether nodes that a rewrite leaves without a reader are removed in the end.
    """

    needs: ClassVar[tuple[str, ...]]
    leaves_unused: ClassVar[bool] = False

    @override
    def call(self, model: ir.Model) -> PassResult:
        if not any(node.op_type in self.needs for node in model.graph):
            return PassResult(model, False)
        modified = False
        self.begin(model.graph)
        hanging = data_dependent_values(model.graph)
        for node in list(model.graph):
            if node.graph is None or not hanging.isdisjoint(node.outputs):  # an earlier rewrite removed it
                continue
            with naming(node_name(node), node.op_type):
                match = self.match(node)
                if match is not None:
                    self.rewrite(model.graph, node, match)
                    modified = True
        if modified and self.leaves_unused:
            remove_unused(model)
        return PassResult(model, modified)

    def begin(self, graph: ir.Graph) -> None:  # most patterns need one node and its neighbours
        """Look at the whole graph before its nodes."""

    @abstractmethod
    def match(self, node: ir.Node) -> Match | None:
        """What `rewrite` has to know of the pattern that ends at a node; None where it does not match."""

    @abstractmethod
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: Match) -> None:
        """Change the graph."""


def convolution_before(node: ir.Node) -> ir.Node | None:
    """The fused convolution whose output this node reads first, and it alone; None for others."""
    x = operand(node, 0)
    conv = None if x is None else x.producer()
    return conv if conv is not None and is_op(conv, "Conv", DOMAIN) and only_read_by(conv, node) else None


def has_residual(conv: ir.Node) -> bool:
    """Whether a fused convolution adds a tensor."""
    return operand(conv, 3) is not None


def has_rows(node: ir.Node) -> bool:
    """Whether a node is a fused convolution that is a product of rows with a matrix."""
    return is_op(node, "Conv", DOMAIN) and node.attributes.get_int("rows", 0) == 1


def is_float(node: ir.Node) -> bool:
    """Whether a node multiplies float32 or float16 numbers: its first two inputs."""
    return all(value is not None and dtype_of(value) in (DType.FLOAT32, DType.FLOAT16) for value in node.inputs[:2])


def codes_scale(node: ir.Node | None) -> float | None:
    """The one scale of a Q or DQ of int8 or FP8 around 0; None for others."""
    if node is None or node.op_type not in ("QuantizeLinear", "DequantizeLinear") or node.domain:
        return None
    scale, zero = array_of(node.inputs[1]), array_of(operand(node, 2))
    if scale is None or scale.size != 1 or codes_type(node) is None or zero.any():
        return None
    return float(scale.reshape(()))


def is_around_zero(node: ir.Node) -> bool:
    """Whether a Q or DQ has no zero point, or a constant 0; one that is computed may be any number."""
    value = operand(node, 2)
    zero = array_of(value)
    return value is None or (zero is not None and not zero.any())


def codes_type(node: ir.Node | None) -> DType | None:
    """The type of a Q or DQ's codes, int8 or FP8, as its zero point says; None for others."""
    zero = None if node is None else array_of(operand(node, 2))
    return next((dtype for dtype in CODES if zero is not None and zero.dtype.name == dtype.value), None)


def weight_dims(conv: ir.Node) -> tuple[int, ...]:
    """(K, C / group, R, S); empty for other ranks."""
    dims = dims_of(operand(conv, 1)) or ()
    return tuple(dims) if len(dims) == 4 and all(isinstance(dim, int) for dim in dims) else ()


def scale_of(node: ir.Node, name: str) -> float:
    """A scale among a fused node's attributes; 0 where it has none."""
    attribute = node.attributes.get(name)
    return 0.0 if attribute is None else attribute.as_float()
