"""Operators of ``com.microsoft`` that onnxruntime computes wrongly or crashes on; they are rewritten with ONNX's operators.

All seen with onnxruntime 1.32: (1) FusedMatMul and TransposeMatMul with ``transA``, where the second operand is a vector, read the first
as if its axes had not changed; (2) QLinearLeakyRelu and QLinearSigmoid without a zero point of the result read behind their inputs;
(3) operators that divide by the number of elements of an input, or read a scale without asking whether there is one, end the process
where that input has no elements.
"""

from __future__ import annotations

from collections.abc import Collection

from ...model.operator_traits import Trait, operators
from ...utils.optional import onnx
from ...validation.dataflow import downstream, walk
from .node import ContribNode, MalformedError, NotWritableError, UnknownTypeError
from .quantized import QUANTIZED
from .table import BODIES, CONTRIB
from .write import check_node, known_nodes, write_functions

__all__ = ["crashes_without_elements", "has_faults", "rewrite_faulty_operators"]

_PRODUCTS = ("FusedMatMul", "TransposeMatMul")
_RESULTS = ("QLinearLeakyRelu", "QLinearSigmoid")
_ENDING = frozenset((*QUANTIZED, "QAttention", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
_FROM_VALUES = operators(Trait.DATA_DEPENDENT) | {"If", "Loop"}
"""Operators whose results can turn out to have no elements, whatever their inputs have."""


def crashes_without_elements(node: onnx.NodeProto) -> bool:
    """Whether onnxruntime's kernel of this contrib operator can crash on an input without elements."""
    return node.domain == CONTRIB and node.op_type in _ENDING


def has_faults(model: onnx.ModelProto) -> bool:
    """Whether a normalized model has a form that onnxruntime gets wrong.

    Raises:
        ModelError: a node of ``com.microsoft`` lacks an input or attribute that its operator needs, or has it otherwise.
    """
    if all(node.domain != CONTRIB for node in walk(model.graph.node)):
        return False
    nodes = [node for node in known_nodes(model) if (node.node.domain, node.node.op_type) in BODIES]
    for node in nodes:
        check_node(node, BODIES)
    uncertain = _uncertain(model)
    return any(_is_fault(node, uncertain) for node in nodes if node.node.domain == CONTRIB)


def rewrite_faulty_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrite operators that onnxruntime computes wrongly with ONNX's; gives the normalized model itself where it has none."""
    uncertain = _uncertain(model)

    def body(node: ContribNode) -> str:
        if not _is_fault(node, uncertain):
            raise UnknownTypeError("a form without a fault")  # stays as it is
        try:
            return BODIES[CONTRIB, node.node.op_type](node)
        except NotWritableError as error:
            empty = next((index for index in range(len(node.node.input)) if node.lacks_elements(index)), None)
            if empty is None:
                raise
            raise MalformedError(f"has no elements in its input {empty} (and {error})") from None

    return write_functions(model, {key: body for key in BODIES if key[0] == CONTRIB})


def _uncertain(model: onnx.ModelProto) -> set[str]:
    """Tensors that can turn out to have no elements, whatever the inputs of the model have."""
    makers = [node for node in model.graph.node if node.op_type in _FROM_VALUES]
    return downstream(model.graph.node, (name for node in makers for name in node.output if name))


def _is_fault(node: ContribNode, uncertain: Collection[str]) -> bool:
    op_type = node.node.op_type
    if op_type in _PRODUCTS:
        return bool(node.attribute("transA", 0)) and node.rank(1) == 1
    if op_type in _RESULTS and not node.has(4):
        return True
    return crashes_without_elements(node.node) and any(
        node.lacks_elements(index) or name in uncertain for index, name in enumerate(node.node.input) if name
    )
