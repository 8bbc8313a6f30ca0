"""Constant folding and shape propagation: shapes, values computed from them, and values computed from constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from ..errors import DimsError
from ..model.ir import add_constant, array_of, constant, is_op, operand, remove_unused
from ..model.operator_traits import RECURRENT, Trait, operators
from ..tensor import SymbolicDim, evaluate_dims
from ..utils.optional import ir, onnx, require
from ..validation import infer_node
from ._base import Pass, PassResult
from .constant_operators import COMPUTED, is_small_arithmetic
from .functions import definition, splice
from .half import STAYS_FLOAT
from .shape_values import SymbolicShapeValues

__all__ = ["PropagateConstants"]

_RANDOM = operators(Trait.RANDOM)
_ELSEWHERE = frozenset().union(*map(operators, (Trait.CONVOLUTION, Trait.POOL, Trait.GLOBAL_POOL)), RECURRENT) | {
    "AffineGrid", "BatchNormalization", "CumSum", "GridSample", "Hardmax", "LRN", "MelWeightMatrix", "OneHot", "PRelu", "QLinearMatMul",
    "Resize", "RoiAlign", "STFT", "Upsample",
}  # fmt: skip
"""Layers of which ONNX's reference implementation computes some forms otherwise than ONNX's text says: the engines compute them."""
_RULED_FROM = {"GreaterOrEqual": 16, "LessOrEqual": 16}
"""Operator whose first version has no rule for dims → the version whose rule it follows."""
_FLOAT = 1  # TensorProto.FLOAT
_FLOATS = (_FLOAT, 10, 16)  # and FLOAT16, BFLOAT16
_MAX_BYTES = 1 << 26
"""What a result may have that is larger than all it is computed from."""
_BOUNDED = operators(Trait.DATA_DEPENDENT) - {"NonMaxSuppression"}
"""Operators whose results have dims that values say, and no more of them than their inputs have."""
_SIZES = 16
"""Elements of a tensor that may hold sizes, such as the pads of all axes."""
_SINCE = {"DequantizeLinear": 19}
"""Operators that the reference implementation knows from an opset on only, in which they mean what they meant before."""
_MAX_HINT = 1 << 12
"""Elements of a constant that shape inference is shown."""


class PropagateConstants(Pass):
    """Infer the dims of every tensor as far as they are known, and fold what is computed from constants.

    1. The model's free dims get their sizes, where these are given.
    2. Dims and types that the model does not say are inferred, node by node, from those before and from constants.
    3. Shape and Size of a tensor whose dims are known become constants.
    4. A node whose inputs are all constants becomes what it gives, computed by ONNX's reference implementation.
    5. An If whose condition is known becomes the branch that it takes.
    6. Operators that the caller lacks become what ONNX defines them by.

    What stays: (1) random numbers; (2) plugins; (3) nodes with subgraphs, besides If; (4) results above 64 MB that are larger than
    what they are computed from, and those whose dims are not known; (5) QuantizeLinear and DequantizeLinear, which say which
    weights are int8, but for vectors of a few numbers where sizes of free dims are given, and unless ``computes`` names them;
    (6) layers that the reference
    implementation does not compute as ONNX says in every form.

    Args:
        sizes: Free dim → its size.
        expands: Whether to write an operator with those by which ONNX defines it.
        own_dims: Dims of the outputs of a node of another domain than ONNX's, from those of its inputs; None: unknown.
        computes: Whether a node may go, for what it gives or for the branch that it takes; default: any. Where it is given, nodes that
            lead nowhere stay, unless such a node has gone.
        folds: Whether nodes become constants. False, where the dims of tensors alone are wanted: nodes stay, and tensors whose values are
            known have them as ``const_value``.
        inferred: Tensors whose dims stand in the model as ONNX's inference said them, which calls equal dims alike: a dim is inferred
            again where its name comes first, and whatever it is found to be is put in the place of this name.
    """

    name: ClassVar[str] = "propagate-constants"

    def __init__(
        self,
        sizes: Mapping[str, int] | None = None,
        expands: Callable[[str], bool] = lambda op_type: False,
        own_dims: Callable[[ir.Node], Sequence[Sequence[int]] | None] = lambda node: None,
        computes: Callable[[ir.Node], bool] | None = None,
        inferred: Container[str | None] = (),
        folds: bool = True,
    ) -> None:
        self.folds = folds
        self.sizes, self.expands, self.own_dims = sizes or {}, expands, own_dims
        self.computes, self.inferred = computes, inferred

    def call(self, model: ir.Model) -> PassResult:
        """Fold in place."""
        graph = model.graph
        self._version = model.opset_imports.get("", 1)
        self._partial = SymbolicShapeValues()
        self._folded: list[ir.Node] = []
        modified = self._gone = False
        self._dims_of_name = dict[str | None, Any]()
        for value in graph.inputs:
            modified |= self._bind(value)
            self._note_names(value.shape or ())
        for node in graph:  # nodes that are put behind this one come next
            if is_op(node, "If") and self._may_go(node) and (branch := self._branch(node)) is not None:
                splice(graph, node, branch, ())
                modified = self._gone = True
                continue
            if node.op_type == "Constant" and self._fold(graph, node):  # its dims need no inference
                modified = True
                continue
            if self._fold_small(node):
                modified = self._gone = True
                continue
            for value in node.outputs:
                modified |= self._bind(value)
            if not all(map(self._is_known, filter(attrgetter("name"), node.outputs))):
                before = [(value.type, value.shape) for value in node.outputs]
                self._infer(node)
                modified |= before != [(value.type, value.shape) for value in node.outputs]
                for value, (_, shape) in zip(node.outputs, before, strict=True):
                    if value.name in self.inferred and value.shape is not None:
                        self._note_names(shape or (), value.shape)
                        self._note_names(value.shape)
            self._partial.note(node)
            if self._fold(graph, node):
                modified = self._gone = True
            elif (
                self.expands(node.op_type)
                and not node.domain
                and (inner := definition(node, self._version)) is not None
            ):
                splice(graph, node, inner, node.inputs)
                modified = True
        self._remove_folded(graph)
        removes = self.folds and (self.computes is None or self._gone)
        return PassResult(model, (removes and remove_unused(model)) or modified)

    def _may_go(self, node: ir.Node) -> bool:
        return self.computes is None or self.computes(node)

    def _bind(self, value: ir.Value) -> bool:
        """Replace free dims by given sizes."""
        if value.shape is None or value.shape.is_static() or not self.sizes:
            return False
        dims = [_size(dim, self.sizes) for dim in value.shape]
        changed = dims != list(value.shape)
        value.shape = ir.Shape(dims)
        return changed

    def _is_known(self, value: ir.Value) -> bool:
        """Whether a tensor's type is known, and all of its dims are: its ``inferred`` dims get the names that are known by now."""
        if value.type is None or value.shape is None or value.shape.is_static() or value.name not in self.inferred:
            return value.type is not None and _is_static(value)
        names = self._dims_of_name
        dims = [dim if isinstance(dim, int) else names.get(dim.value, dim) for dim in value.shape]
        is_known = all(isinstance(dim, int) or dim.value in names for dim in value.shape)
        value.shape = ir.Shape(dims)
        node = value.producer()
        return is_known and node is not None and not self._partial.may_say_dims(node)

    def _note_names(self, dims: Iterable[Any], found: Iterable[Any] | None = None) -> None:
        """Keep what free dims with names were found to be; by default themselves."""
        for dim, other in zip(dims, dims if found is None else found, strict=False):
            if not isinstance(dim, int) and dim.value is not None:
                self._dims_of_name.setdefault(dim.value, other)

    def _infer(self, node: ir.Node) -> None:
        """Add inferred dims and types that the model does not declare."""
        if node.domain not in ("", "ai.onnx"):
            found_dims = self.own_dims(node)
            for output, dims in zip(node.outputs, found_dims or (), strict=False):
                output.shape = ir.Shape(dims)
            return
        if any(value is not None and value.type is None for value in node.inputs):
            return
        proto, types, data = ir.serde.serialize_node(node), dict[str, Any](), dict[str, Any]()
        for value in node.inputs:
            if value is not None:
                types[str(value.name)] = _type_proto(value)
                array = array_of(value) if _elements(value) <= _MAX_HINT else None
                array = self._partial.constant(value) if array is None else array
                if array is not None:
                    data[str(value.name)] = onnx.numpy_helper.from_array(array, value.name)
        apart = {
            value.name for place in STAYS_FLOAT.get(node.op_type, ()) if (value := operand(node, place)) is not None
        }
        alike = [] if node.op_type == "CastLike" else [kind for name, kind in types.items() if name not in apart]
        floats = [kind.tensor_type for kind in alike if kind.tensor_type.elem_type in _FLOATS]
        for kind in floats:  # engines may keep constants in float32 beside tensors in float16: dims do not hang on that
            kind.elem_type = (
                _FLOAT if node.op_type == "QuantizeLinear" else floats[0].elem_type
            )  # before opset 19 it has no other
        version = max(self._version, _RULED_FROM.get(node.op_type, 0))
        try:
            inferred = infer_node(proto, types, data, version)
        except Exception:  # it has no rule, or the rule fails: the dims stay unknown
            return
        for value in node.outputs:
            kind = inferred.get(str(value.name))
            if kind is not None and kind.tensor_type.elem_type:
                value.type = value.type or ir.serde.deserialize_type_proto_for_type(kind)
                shape = ir.serde.deserialize_type_proto_for_shape(kind)
                if shape is not None and not _is_static(value):
                    value.shape = _merge_shapes(shape, value.shape)
        if (computed_dims := self._partial.shape_of(node)) is not None and not _is_static(node.outputs[0]):
            shape = ir.Shape([str(dim) if isinstance(dim, SymbolicDim) else dim for dim in computed_dims])
            node.outputs[0].shape = _merge_shapes(shape, node.outputs[0].shape)

    def _fold(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Compute the node's outputs as constants, if all inputs are known; `_remove_folded` removes it."""
        if not self._may_fold(node):
            return False
        is_output = any(value.is_graph_output() for value in node.outputs)
        if is_output and (len(node.outputs) > 1 or node.op_type in ("Constant", "Identity")):
            return False
        if node.op_type == "Constant":
            tensor = constant(node.outputs[0]) if node.attributes else None
            if tensor is None:
                return False
            value = node.outputs[0]
            if value.shape is None or value.type is None:  # of a function's body, which no inference has seen
                value.shape, value.type = ir.Shape([*tensor.shape]), ir.TensorType(tensor.dtype)
            self._folded.append(node)
            return True
        shape_value = self._partial.constant(node.outputs[0]) if node.outputs else None
        results = self._evaluate(node) if shape_value is None else [shape_value]
        if results is None:
            return False
        if is_output and self.folds:  # which keeps its name, and a node that gives it
            value = add_constant(graph, f"{node.outputs[0].name}_value", results[0])
            node.resize_inputs(1)
            node.replace_input_with(0, value)
            node.op_type, node.version = "Identity", None
            node.attributes.clear()
            return True
        self._set_constants(node, results)
        return True

    def _may_fold(self, node: ir.Node) -> bool:
        """Whether a node's outputs may be computed here, if its inputs are known."""
        if not self._may_go(node) or node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM:
            return False
        if self.computes is None and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return self._is_size(node)
        return node.op_type not in _ELSEWHERE or _is_lower_bound(node)

    def _fold_small(self, node: ir.Node) -> bool:
        """Compute arithmetic on a few constants, whose dims need no inference then."""
        if node.op_type not in COMPUTED or any(value is not None and constant(value) is None for value in node.inputs):
            return False
        if not node.inputs or node.outputs[0].is_graph_output() or not self._may_fold(node):
            return False
        arrays = [array_of(value) for value in node.inputs]
        if not is_small_arithmetic(node, arrays):
            return False
        try:
            with np.errstate(all="ignore"):
                result = COMPUTED[node.op_type](node, *arrays)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return False
        if result is None:
            return False
        output = node.outputs[0]
        before = output.shape
        self._set_constants(node, [result])
        if output.name in self.inferred:
            self._note_names(before or (), output.shape)
        return True

    def _set_constants(self, node: ir.Node, results: Iterable[Any]) -> None:
        """Give a node's outputs their values; the node is removed when all nodes were looked at."""
        for value, array in zip(node.outputs, results, strict=False):
            if array is None:
                continue
            value.const_value = tensor = ir.Tensor(np.asarray(array, order="C"), name=value.name)
            if not value.is_graph_output():
                value.shape, value.type = tensor.shape, ir.TensorType(tensor.dtype)
        self._folded.append(node)

    def _remove_folded(self, graph: ir.Graph) -> None:
        """Replace what other nodes read of the folded ones by initializers, and remove them."""
        nodes = [node for node in self._folded if not any(value.is_graph_output() for value in node.outputs)]
        folded = set(nodes)
        for value in [value for node in nodes if self.folds for value in node.outputs]:
            if any(use.node not in folded for use in value.uses()):
                array, name, value.name = array_of(value), str(value.name), None
                value.replace_all_uses_with(add_constant(graph, name, array, set()))
        if self.folds:
            graph.remove(nodes, safe=True)

    def _is_size(self, node: ir.Node) -> bool:
        """Whether a Q or DQ rounds a few numbers that depend on free dims with given sizes: quantizers round sizes in float, too."""
        x = operand(node, 0)
        few = x is not None and x.shape is not None and len(x.shape) < 2 and _elements(x) <= _SIZES
        return bool(self.sizes) and few and node.inputs[1] is not None and _elements(node.inputs[1]) == 1

    def _evaluate(self, node: ir.Node) -> Sequence[Any] | None:
        if any(value is not None and constant(value) is None for value in node.inputs):
            return None
        if any(attribute.type.name in ("GRAPH", "GRAPHS") for attribute in node.attributes.values()):
            return None
        arrays = [array_of(value) for value in node.inputs]  # which copies weights
        input_bytes = sum(array.nbytes for array in arrays if array is not None)
        if node.op_type not in _BOUNDED and any(max(input_bytes, _MAX_BYTES) < _bytes(value) for value in node.outputs):
            return None
        if node.op_type in COMPUTED:
            try:
                with np.errstate(all="ignore"):
                    result = COMPUTED[node.op_type](node, *arrays)
            except (ArithmeticError, LookupError, TypeError, ValueError):  # the engine says what is wrong when it runs
                return None
            if result is not None:
                return [result]
        reference = require("onnx.reference", extra="onnx")
        proto = ir.serde.serialize_node(node)
        inputs = [onnx.helper.make_tensor_value_info(name, 0, None) for name in dict.fromkeys(proto.input) if name]
        outputs = [onnx.helper.make_tensor_value_info(name, 0, None) for name in proto.output if name]
        model = onnx.helper.make_model(
            onnx.helper.make_graph([proto], "constants", inputs, outputs),
            opset_imports=[onnx.helper.make_opsetid("", max(self._version, _SINCE.get(node.op_type, 0)))],
        )
        feeds = {value.name: array for value, array in zip(node.inputs, arrays, strict=True) if value is not None}
        try:
            with np.errstate(all="ignore"):
                results = iter(reference.ReferenceEvaluator(model).run(None, feeds))
        except Exception:  # its values are not for constants: the engine says what is wrong when it runs
            return None
        return [next(results) if value.name else None for value in node.outputs]

    def _branch(self, node: ir.Node) -> ir.Graph | None:
        condition = array_of(node.inputs[0])
        if condition is None or condition.size != 1:
            return None
        return node.attributes["then_branch" if condition.reshape(()) else "else_branch"].as_graph()


def _type_proto(value: ir.Value) -> Any:
    """A tensor's ``TypeProto``, without onnx-ir's, which takes longer, for all but sequences and the like."""
    if value.type is None or type(value.type) is not ir.TensorType:
        return ir.serde.serialize_value(value).type
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = value.type.dtype
    if value.shape is not None:
        proto.tensor_type.shape.SetInParent()
        for dim in value.shape:
            item = proto.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                item.dim_value = dim
            elif dim.value is not None:
                item.dim_param = dim.value
    return proto


def _merge_shapes(inferred: ir.Shape, declared: ir.Shape | None) -> ir.Shape:
    """The inferred dims; dims without a name take the declared ones."""
    if declared is None or len(declared) != len(inferred):
        return inferred
    pairs = zip(inferred, declared, strict=True)
    return ir.Shape([old if not isinstance(new, int) and new.value is None else new for new, old in pairs])


def _size(dim: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(dim, int) or dim.value is None:
        return dim
    try:
        return evaluate_dims((SymbolicDim(dim.value),), sizes)[0]
    except DimsError:
        return dim


def _is_static(value: ir.Value) -> bool:
    """Whether all of a tensor's dims are known."""
    return value.shape is not None and value.shape.is_static()


def _is_lower_bound(node: ir.Node) -> bool:
    """Whether a node is a Clip with a lower bound alone, which is a maximum."""
    return node.op_type == "Clip" and operand(node, 1) is not None and operand(node, 2) is None


def _elements(value: ir.Value) -> float:
    """How many elements a tensor has; infinite where that is not known."""
    return math.prod(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else math.inf


def _bytes(value: ir.Value) -> float:
    """Bytes of a tensor: 0 if it is omitted, infinite if its dims are unknown."""
    return _elements(value) * (value.dtype.itemsize if value.dtype is not None else 1) if value.name else 0
