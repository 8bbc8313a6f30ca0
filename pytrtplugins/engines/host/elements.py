"""Protect onnxruntime's kernels that crash on empty tensors (seen with 1.32) from such tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import BuildError, ExecutionError
from ...model.proto import copy_of, infos_of, node_name, without_data
from ...passes import of_onnx
from ...passes.contrib import crashes_without_elements
from ...utils.optional import onnx
from ...utils.override import override
from ...utils.repeated import set_items
from ...validation import infer
from ...validation.dataflow import subgraphs, walk
from ...validation.operators import node_text, standard_domain
from .shared_session import Session

__all__ = ["GuardedSession", "may_be_plain", "needs_guard", "with_checks", "without_known"]

_FUSED = frozenset(
    ("Add", "DequantizeLinear", "DynamicQuantizeLinear", "LayerNormalization", "MatMulInteger", "Mul", "QuantizeLinear")
)
"""Of which onnxruntime's optimizer makes kernels that end the process without elements."""


class GuardedSession(Session):
    """A session of a model with kernels that can crash on empty tensors; for such inputs, another session without them runs."""

    def __init__(
        self, make: Callable[[], Any], model: onnx.ModelProto, make_plain: Callable[[onnx.ModelProto], Any]
    ) -> None:
        super().__init__(make)
        self._model, self._make_plain = model, make_plain
        self._anywhere = any(map(_crashes_without_elements, walk(model.graph.node)))
        self._direct = _read_by_codes(model)
        self._plain: Session | None = None

    @override
    def run(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
        empty = [name for name, array in inputs.items() if not array.size]
        if not empty or not (self._anywhere or self._direct.intersection(empty)):
            return super().run(outputs, inputs)
        _check_elements(self._model, {name: array.shape for name, array in inputs.items()})
        with self._making:
            self._plain = self._plain or Session(partial(self._make_plain, self._written()))
        return self._plain.run(outputs, inputs)

    def _written(self) -> onnx.ModelProto:
        """The model with ONNX's operators only, for inputs that are empty."""
        written = of_onnx(self._model)
        node = next(filter(crashes_without_elements, walk(written.graph.node)), None)
        if node is not None:
            raise ExecutionError(
                f"{node_text(node)}: onnxruntime's kernel can end the process where an input has no elements, and this form of the "
                'operator is not written with others.\nDo: give inputs with elements, or build with engine="reference"',
                node=node.name,
            )
        return written


def _crashes_without_elements(node: onnx.NodeProto) -> bool:
    """Whether a node has a kernel that crashes on empty tensors."""
    return crashes_without_elements(node) or _needs_elements(node)


def _read_by_codes(model: onnx.ModelProto) -> set[str]:
    """Tensors read by operators that onnxruntime's optimizer turns into such kernels."""
    return {name for node in walk(model.graph.node) if node.op_type in _FUSED for name in node.input if name}


def _known_empty(model: onnx.ModelProto) -> set[str]:
    """Tensors that are known to be empty."""
    empty = {tensor.name for tensor in model.graph.initializer if 0 in tensor.dims}
    for name, info in infos_of(model.graph).items():
        dims = info.type.tensor_type.shape.dim
        if any(dim.HasField("dim_value") and not dim.dim_value for dim in dims):
            empty.add(name)
    return empty


def _needs_elements(node: onnx.NodeProto) -> bool:
    """Whether a kernel of ONNX's own operators crashes on empty tensors, as seen with onnxruntime 1.32."""
    if standard_domain(node.domain):
        return False
    along = node.op_type == "Unique" and any(attribute.name == "axis" for attribute in node.attribute)
    return along or node.op_type in ("Einsum", "GRU", "Scan")


def _check_elements(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse inputs whose dims make a tensor of such a kernel empty."""
    if not any(map(_needs_elements, walk(model.graph.node))):
        return
    sized = without_data(model)
    for info in sized.graph.input:
        info.type.tensor_type.ClearField("shape")
        for size in shapes[info.name]:
            info.type.tensor_type.shape.dim.add(dim_value=size)
    inferred = infer(sized)
    empty = _known_empty(inferred)
    for node in filter(_needs_elements, inferred.graph.node):
        if not empty.isdisjoint(node.input):
            raise ExecutionError(
                f"{node_text(node)} is given a tensor without elements, which onnxruntime's kernel cannot read.\n"
                'Do: give elements, or build with engine="reference"',
                node=node.name,
            )


def needs_guard(model: onnx.ModelProto) -> bool:
    """Whether empty inputs could reach a kernel that crashes."""
    if any(map(_crashes_without_elements, walk(model.graph.node))):
        return True
    return not _read_by_codes(model).isdisjoint(info.name for info in model.graph.input)


def may_be_plain(model: onnx.ModelProto) -> bool:
    """Whether it is known that an operator of which onnxruntime's optimizer makes such a kernel gets no elements."""
    empty = _known_empty(model)
    return bool(empty) and not empty.isdisjoint(_read_by_codes(model))


def without_known(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without such kernels on tensors that are known to be empty, or itself; even making a session may run them.

    Raises:
        BuildError: such a node cannot be written with others.
    """
    empty = _known_empty(model)

    def found(model: onnx.ModelProto) -> list[onnx.NodeProto]:
        nodes = filter(_crashes_without_elements, walk(model.graph.node))
        return [node for node in nodes if not empty.isdisjoint(node.input)]

    if not empty or not found(model):
        return model
    written = of_onnx(model)
    for node in found(written):
        raise BuildError(
            f"{node_text(node)} gets a tensor without elements, on which onnxruntime's kernel can end the process.\n"
            'Do: build with engine="reference"',
            node=node.name,
        )
    return written


def with_checks(model: onnx.ModelProto) -> onnx.ModelProto:
    """Insert checks into a model, so that onnxruntime raises an error before such a kernel gets an empty tensor.

    Before each input whose dims are not known to be 1 or more stands a Reshape to its own dims; these are computed with a Gather that
    is out of range where there are no elements. Inputs of the model are `GuardedSession`'s.

    Returns:
        This very model where there is nothing to check; else a copy.
    """
    if not any(map(_needs_elements, walk(model.graph.node))):
        return model
    checked = copy_of(model)
    sizes = {dim.dim_param for info in checked.graph.input for dim in info.type.tensor_type.shape.dim if dim.dim_param}
    changed = _check_graph(checked.graph, sizes, {info.name for info in checked.graph.input})
    return checked if changed else model


def _check_graph(graph: onnx.GraphProto, sizes: Collection[str], inputs: Collection[str]) -> bool:
    infos, constant_names = infos_of(graph), {tensor.name for tensor in graph.initializer}
    nodes, changed = list["onnx.NodeProto"](), False
    for node in graph.node:
        for body in subgraphs(node):
            changed |= _check_graph(body, sizes, ())
        for index, name in enumerate(node.input) if _needs_elements(node) else ():
            if name and name not in constant_names and name not in inputs and not _has_elements(infos.get(name), sizes):
                nodes += _check(node, index)
                changed = True
        nodes.append(node)
    if changed:
        set_items(graph.node, nodes)
    return changed


def _has_elements(info: onnx.ValueInfoProto | None, sizes: Collection[str]) -> bool:
    """Whether all dims are numbers above 0, or those of the model's inputs."""
    if info is None or not info.type.tensor_type.HasField("shape"):
        return False
    return all(dim.dim_value > 0 or dim.dim_param in sizes for dim in info.type.tensor_type.shape.dim)


def _check(node: onnx.NodeProto, index: int) -> list[onnx.NodeProto]:
    """Nodes that check one input; the node reads their output."""
    name = node.input[index]
    result = f"{node_name(node)}/elements of {name}/{index}"
    node.input[index] = result
    zero = onnx.helper.make_tensor(f"{result}/zero", 7, [1], [0])  # TensorProto.INT64
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Constant", [], "none", {"value": zero}),
        ("Size", [name], "size", {}),
        ("Equal", [f"{result}/size", f"{result}/none"], "is empty", {}),
        ("Cast", [f"{result}/is empty"], "place", {"to": 7}),
        ("Gather", [f"{result}/none", f"{result}/place"], "nothing", {}),
        ("Shape", [name], "dims", {}),
        ("Add", [f"{result}/dims", f"{result}/nothing"], "same dims", {}),
    ]
    nodes = [
        onnx.helper.make_node(op, inputs, [f"{result}/{suffix}"], f"{result}/{suffix}", **more)
        for op, inputs, suffix, more in steps
    ]
    return [*nodes, onnx.helper.make_node("Reshape", [name, f"{result}/same dims"], [result], result)]
