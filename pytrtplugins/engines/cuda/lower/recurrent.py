"""Split LSTM, GRU and RNN into one product of all inputs with W, and one node for the recurrence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import add_constant, array_of, dims_of, dtype_of, is_op, operand
from ....model.operator_traits import RECURRENT
from ....tensor import DType
from ....utils.optional import ir
from ..device.recurrent import activations_of
from .epilogue import fused_convolution
from .matmul import dequantize_filters
from .qdq import computed_constant
from .rewrite import DOMAIN, Rewrite, is_around_zero, is_float

__all__ = ["SplitRecurrent"]

_DEFAULTS = {"direction": "forward", "layout": 0, "linear_before_reset": 0, "input_forget": 0}
_LISTS = ("activations", "activation_alpha", "activation_beta")


@dataclass(frozen=True)
class _Layer:
    """Weights of a recurrent layer, float32 where nothing else is said, and attributes of its recurrence.

    Attributes:
        w: (directions · gates · hidden, inputs), float32, or codes of int8.
        scales: Of the codes' rows, (directions · gates · hidden); None for float32.
        r: (directions, gates · hidden, hidden).
        bias: (directions · gates · hidden), added to the products with W.
        added: The part of a GRU's biases that the reset gate multiplies, (directions, 1, hidden), or an LSTM's peepholes,
            (directions, 3, hidden), or None.
        attributes: See `SplitRecurrent`.
    """

    w: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None
    r: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    added: npt.NDArray[np.float32] | None
    attributes: dict[str, Any]


class SplitRecurrent(Rewrite[_Layer]):
    """LSTM, GRU or RNN with constant weights → the engine's ``Conv`` with ``rows`` 1, and its ``Recurrent``.

    The first has the products of all steps' inputs with W of all directions, and the biases. Where W is dequantized from int8 with one
    scale, or one for each row, so are its filters: with dequantized inputs it becomes a product of codes. ``Recurrent`` reads them, R, the
    biases or peepholes that cannot be added before, lengths, and the first h and c; it gives Y, Y_h and Y_c. It has the
    attributes of the ONNX node, ``operator`` and ``hidden_size``.

    What does not match: (1) weights, biases or peepholes that are computed in the run; (2) sequences of an unknown rank or width,
    or without values; (3) other types than float32 and float16, or lengths that are not int32; (4) activations that
    ONNX does not list, or too few of them.
    """

    name: ClassVar[str] = "recurrent"
    needs: ClassVar[tuple[str, ...]] = tuple(RECURRENT)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> _Layer | None:
        """The weights, and the attributes of the recurrence."""
        if node.op_type not in RECURRENT or node.domain or not is_float(node):  # case 3
            return None
        dims, lengths = dims_of(node.inputs[0]) or (), operand(node, 4)
        if len(dims) != 3 or not isinstance(dims[2], int) or not dims[2]:  # case 2
            return None
        if lengths is not None and dtype_of(lengths) is not DType.INT32:  # case 3
            return None
        w, r, b, p = (_constant_of(operand(node, index)) for index in (1, 2, 3, 7))
        missing = [operand(node, index) is not None and array is None for index, array in ((3, b), (7, p))]
        if w is None or r is None or any(missing) or not w.size or not r.size:  # case 1
            return None
        layer = _layer(node, *(None if array is None else array.astype(np.float32) for array in (w, r, b, p)))
        codes = _codes_of(node.inputs[1])
        if layer is None or codes is None:
            return layer
        return replace(layer, w=codes[0].reshape(layer.w.shape), scales=codes[1])

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Layer) -> None:
        """Replace the node by the product and the recurrence."""
        x = node.inputs[0]
        assert x is not None
        assert x.dtype is not None
        name = next(str(output.name) for output in node.outputs if output.name)
        filters = add_constant(graph, f"{name}.weights", match.w[..., None, None])
        if match.scales is not None:
            scales = add_constant(graph, f"{name}.weight_scales", match.scales)
            zeros = add_constant(graph, f"{name}.weight_zeros", np.zeros(match.scales.shape, np.int8))
            filters = dequantize_filters(graph, node, filters, scales, zeros)
        product = fused_convolution(graph, node, [x, filters, add_constant(graph, f"{name}.bias", match.bias)], rows=1)
        product.name = f"{node.name}.inputs"
        inputs = product.outputs[0]
        inputs.name, inputs.type = f"{name}.inputs", ir.TensorType(x.dtype)
        inputs.shape = ir.Shape([*(x.shape or ())[:2], len(match.w)])
        added = None if match.added is None else add_constant(graph, f"{name}.added", match.added)
        states = [operand(node, index) for index in (4, 5, 6)]
        operands = [inputs, add_constant(graph, f"{name}.recurrent", match.r), added, *states]
        recurrence = ir.node(
            "Recurrent", operands, match.attributes, domain=DOMAIN, name=node.name, num_outputs=len(node.outputs)
        )
        graph.insert_before(node, recurrence)
        descriptions = [(output.name, output.shape, output.type) for output in node.outputs]
        for old, new in zip(node.outputs, recurrence.outputs, strict=True):
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        for new, (output_name, shape, kind) in zip(recurrence.outputs, descriptions, strict=True):
            new.name, new.shape, new.type = output_name, shape, kind


def _constant_of(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """The numbers of a constant or of a dequantized one; None for others."""
    origin = None if value is None else value.producer()
    if origin is not None and is_op(origin, "DequantizeLinear"):
        return computed_constant(origin, array_of(origin.inputs[0]))
    array: npt.NDArray[Any] | None = array_of(value)
    return array


def _codes_of(w: ir.Value | None) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]] | None:
    """The int8 codes of W and the scale of each row; None for floats, other codes, and other scales, which stay floats."""
    origin = None if w is None else w.producer()
    if origin is None or not is_op(origin, "DequantizeLinear") or not is_around_zero(origin):
        return None
    codes, scales = array_of(origin.inputs[0]), array_of(origin.inputs[1])
    if codes is None or scales is None or codes.dtype != np.int8:
        return None
    directions, rows, _ = codes.shape
    if scales.size != 1 and (scales.ndim != 1 or origin.attributes.get_int("axis", 1) % 3 != 1):
        return None
    return codes, np.tile(np.broadcast_to(scales.reshape(-1), (rows,)), directions).astype(np.float32)


def _layer(node: ir.Node, w: Any, r: Any, b: Any, p: Any) -> _Layer | None:
    """The layer of a node with weights W, R, B and P; None in case 4 of `SplitRecurrent`."""
    at, op = node.attributes, node.op_type
    directions, rows, hidden = r.shape
    attributes: dict[str, Any] = {
        "operator": op,
        "hidden_size": hidden,
        **{name: at[name].value if name in at else value for name, value in _DEFAULTS.items()},
        **{name: list(at[name].value) for name in _LISTS if name in at and len(at[name].value)},
        **({"clip": float(at["clip"].value)} if "clip" in at else {}),
    }
    try:
        texts = activations_of(attributes)
    except KeyError:
        return None
    if len(texts) != directions or len({len(functions) for functions in texts}) != 1:
        return None
    biases = (
        np.zeros((directions, 2, rows), np.float32) if b is None else b.reshape(directions, 2, rows)
    )  # of W and of R
    bias, added = biases.sum(axis=1), None if p is None else p.reshape(directions, 3, hidden)
    if op == "GRU" and attributes["linear_before_reset"]:
        bias[:, 2 * hidden :] = biases[:, 0, 2 * hidden :]
        added = biases[:, 1:, 2 * hidden :]
    return _Layer(w.reshape(directions * rows, -1), None, r, bias.reshape(-1), added, attributes)
