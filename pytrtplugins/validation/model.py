"""Check a whole model: its graphs, subgraphs, local functions, names and order of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..utils.listing import first_texts
from ..utils.optional import onnx
from ..utils.repeated import set_items
from .dataflow import sort_nodes, subgraphs, tensors_read, walk
from .domains import plain_domains
from .limits import MAX_NODES
from .operators import check_node, node_text, standard_domain
from .tensors import check_dims, check_sparse_tensor, check_tensor
from .well_formed import check_well_formed

__all__ = ["validated"]

_SHOWN = 5
_DO = "\nDo: export the model again; `onnx.checker.check_model(MODEL)` runs ONNX's own check"
_Key = tuple[str, str, str]  # domain, name and overload of a local function


def validated(
    model: onnx.ModelProto, *, path: str | Path | None = None, weights_location: str | None = None, large: bool = True
) -> onnx.ModelProto:
    """Check the structure of a model. Nothing is computed, and no tensor is copied if the nodes are in order.

    Checked are: nesting and number of nodes; imported opsets; names, which are written once and before they are read; inputs,
    outputs and attributes of ONNX's operators against their schemas; constants, whose bytes must be those that their types and
    dims claim, and lie in the model; local functions, which must not call themselves. Operators and domains that the installed
    onnx does not know are left to engines. So are dims of inputs: a size of -1 or 0 is theirs to read.

    Args:
        model: The model; it is not changed.
        path: The model's file, for messages.
        weights_location: Location that stands in the place of weights which were left out on purpose, and which nobody reads.
        large: Count the bytes of large initializers too, which Python's protobuf copies for it, one at a time. False: their values
            are not going to be read.

    Returns:
        The model. One whose nodes are not in an order in which they can run is copied, and its nodes are sorted; so is one that
        spells or imports domains otherwise than `plain_domains` does.

    Raises:
        ModelError: the model is broken; ``.node``, ``.tensor`` or ``.function`` says where.
    """
    try:
        return _Validation(model, weights_location, large).run()
    except ModelError as error:
        text = str(error) if "\nDo: " in str(error) else f"{error}.{_DO}"
        prefix = "" if path is None else f"{path}: "
        raise ModelError(prefix + text, **{**error.facts, **({} if path is None else {"path": Path(path)})}) from None


class _Validation:
    """The check of one model."""

    def __init__(self, model: onnx.ModelProto, weights_location: str | None, large: bool) -> None:
        self.model, self.weights_location, self.large = model, weights_location, large
        self.functions: dict[_Key, onnx.FunctionProto] = {}
        self.callable = frozenset[tuple[str, str]]()
        self.nodes = 0
        self.unsorted = False

    def run(self) -> onnx.ModelProto:
        check_well_formed(self.model)
        model = self.model = plain_domains(self.model)
        opsets = _opsets(model.opset_import, "the model")
        self._check_functions(opsets)
        self._check_graph(model.graph, opsets, (), "")
        _check_interface(model.graph)
        return _sort_graphs(model) if self.unsorted else model

    # -- graphs ------------------------------------------------------------------------------------------------------

    def _check_graph(
        self, graph: onnx.GraphProto, opsets: Mapping[str, int], outer: tuple[set[str], ...], where: str
    ) -> None:
        inputs = [info.name for info in graph.input]
        weights = [tensor.name for tensor in graph.initializer] + [
            tensor.values.name for tensor in graph.sparse_initializer
        ]
        for what, names in (("inputs", inputs), ("initializers", weights)):
            if "" in names or len(set(names)) < len(names):
                duplicate = Counter(names).most_common(1)[0][0]
                raise ModelError(
                    f"{where}two {what} have the name {duplicate[:200]!r}"
                    if duplicate
                    else f"{where}one of the {what} has no name",
                    tensor=duplicate,
                )
        for tensor in graph.initializer:
            weights_location = self.weights_location if not where else None
            check_tensor(tensor, f"{where}initializer {tensor.name[:200]!r}", weights_location, large=self.large)
        for sparse in graph.sparse_initializer:
            check_sparse_tensor(sparse, f"{where}sparse initializer {sparse.values.name[:200]!r}")
        defined = {*inputs, *weights}
        scope = self._check_nodes(graph.node, defined, opsets, outer, where)
        for info in graph.output:
            if not info.name or not _is_defined(info.name, (scope, *outer)):
                raise ModelError(
                    f"{where}the output {info.name[:200]!r} of the graph is written by no node", tensor=info.name
                )

    def _check_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        defined: set[str],
        opsets: Mapping[str, int],
        outer: tuple[set[str], ...],
        where: str,
    ) -> set[str]:
        """Check nodes, and return the names that they and their graph define."""
        scope = set(defined)
        for node in nodes:
            check_node(node, opsets, self.callable, where, self.weights_location)
            for name in filter(None, node.output):
                if name in scope:
                    raise ModelError(
                        f"{where}{node_text(node)} writes {name[:200]!r}, which is written or given already",
                        node=node.name,
                        tensor=name,
                    )
                scope.add(name)
        ready = set(defined)
        ordered = True
        for node in nodes:
            inner = subgraphs(node)
            read = tensors_read(node) if inner else set(filter(None, node.input))
            late = read - ready
            if late:
                unknown = sorted(name for name in late if not _is_defined(name, (scope, *outer)))
                if unknown:
                    raise ModelError(
                        f"{where}{node_text(node)} reads {unknown[0][:200]!r}, which no node writes, and which is neither an input nor an "
                        "initializer",
                        node=node.name,
                        tensor=unknown[0],
                    )
                shadowed = sorted(name for name in late & scope if _is_defined(name, outer))
                if shadowed:
                    raise ModelError(
                        f"{where}{node_text(node)} reads {shadowed[0][:200]!r}, which a graph around it has too",
                        node=node.name,
                        tensor=shadowed[0],
                    )
                ordered = ordered and late.isdisjoint(scope)
            ready.update(node.output)
            for body in inner:
                if body.input and node.op_type == "If" and not standard_domain(node.domain):
                    raise ModelError(
                        f"{where}{node_text(node)}: a branch has the input {body.input[0].name[:200]!r}; branches take nothing but what "
                        "they read from around them",
                        node=node.name,
                        tensor=body.input[0].name,
                    )
                self._check_graph(body, opsets, (scope, *outer), f"{where}in {node_text(node)}: ")
        if not ordered:
            _, waiting = sort_nodes(nodes)
            if waiting:
                circle = _find_cycle(waiting)
                shown = first_texts([*map(node_text, circle)], _SHOWN)
                raise ModelError(
                    f"{where}nodes wait for each other's outputs, in a cycle: {shown}", node=circle[0].name
                )
            self.unsorted = True
        return scope

    # -- local functions ---------------------------------------------------------------------------------------------

    def _check_functions(self, opsets: Mapping[str, int]) -> None:
        """Check bodies, and that calls end: neither in a cycle, nor after more nodes than a model may have."""
        for function in self.model.functions:
            key = (standard_domain(function.domain), function.name, function.overload)
            if not function.name or key in self.functions:
                raise ModelError(
                    f"two local functions are called {_function_text(key)}"
                    if function.name
                    else "a local function has no name",
                    function=function.name,
                )
            self.functions[key] = function
        self.callable = frozenset(key[:2] for key in self.functions)
        for key, function in self.functions.items():
            where = f"in the local function {_function_text(key)}: "
            if len({*function.input}) < len(function.input) or "" in function.input:
                raise ModelError(f"{where}its inputs need names, each its own", function=function.name)
            function_opsets = {**opsets, **_opsets(function.opset_import, f"the local function {_function_text(key)}")}
            scope = self._check_nodes(function.node, {*function.input}, function_opsets, (), where)
            lost = [name for name in function.output if name not in scope]
            if lost:
                raise ModelError(
                    f"{where}the output {lost[0][:200]!r} is written by no node", function=function.name, tensor=lost[0]
                )
        self._check_calls()

    def _check_calls(self) -> None:
        sizes: dict[_Key, int] = {}
        calls = {key: _called_functions(function.node, self.functions) for key, function in self.functions.items()}

        def size(nodes: Any, called: Sequence[_Key]) -> int:
            total = sum(1 for _ in walk(nodes)) + sum(sizes[key] for key in called)
            if total > MAX_NODES:
                raise ModelError(
                    f"the model has more than {MAX_NODES:,} nodes where its local functions are written out",
                    found=total,
                )
            return total

        try:
            for key in TopologicalSorter(calls).static_order():
                sizes[key] = size(self.functions[key].node, calls[key])
        except CycleError as error:
            called = error.args[1][0]
            raise ModelError(f"the local function {_function_text(called)} calls itself", function=called[1]) from error
        size(self.model.graph.node, _called_functions(self.model.graph.node, self.functions))


def _called_functions(nodes: Any, functions: Mapping[_Key, onnx.FunctionProto]) -> list[_Key]:
    """Functions that nodes and their subgraphs call, one entry per call."""
    keys = ((standard_domain(node.domain), node.op_type, node.overload) for node in walk(nodes))
    return [key for key in keys if key in functions]


def _find_cycle(waiting: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """A cycle of nodes, found by following producers from any node that could not be sorted."""
    producers = {name: index for index, node in enumerate(waiting) for name in node.output if name}
    path, index = list[int](), 0
    while index not in path:
        path.append(index)
        index = min(producers[name] for name in tensors_read(waiting[index]) if name in producers)
    circle = path[path.index(index) :][::-1]
    first = circle.index(min(circle))
    return [waiting[step] for step in (*circle[first:], *circle[:first])]


def _opsets(imports: Any, whose: str) -> dict[str, int]:
    """Opset version by domain."""
    versions: dict[str, int] = {}
    for item in imports:
        domain = standard_domain(item.domain)
        if not 1 <= item.version < 2**31:
            raise ModelError(
                f"{whose} imports version {item.version} of the domain {domain!r}; versions are numbers from 1"
            )
        versions[domain] = item.version
    return versions


def _check_interface(graph: onnx.GraphProto) -> None:
    """Check that inputs have a type, and no size that memory cannot hold."""
    weights = {tensor.name for tensor in graph.initializer}
    for side, infos in (("input", graph.input), ("output", graph.output)):
        for info in infos:
            what, kind = f"{side} {info.name[:200]!r}", info.type.WhichOneof("value")
            if kind is None and side == "input" and info.name not in weights:
                raise ModelError(f"{what} has no type", tensor=info.name)
            tensor = info.type.tensor_type
            if kind == "tensor_type" and (tensor.elem_type or side == "input"):
                check_dims(
                    tuple(dim.dim_value for dim in tensor.shape.dim if dim.dim_value > 0), tensor.elem_type, what
                )


def _sort_graphs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model with the nodes of all graphs sorted."""
    copy = type(model)()
    copy.CopyFrom(model)
    waiting: list[Any] = [copy.graph, *copy.functions]
    while waiting:
        graph = waiting.pop()
        nodes = list(graph.node)
        order, _ = sort_nodes(nodes)
        if any(a is not b for a, b in zip(order, nodes, strict=True)):
            set_items(graph.node, order)
        waiting += [body for node in graph.node for body in subgraphs(node)]
    return copy


def _is_defined(name: str, scopes: tuple[set[str], ...]) -> bool:
    """Whether a name is defined in one of the scopes."""
    return any(name in scope for scope in scopes)


def _function_text(key: _Key) -> str:
    """A local function's name, for messages."""
    return f"{key[0][:100]}::{key[1][:100]}" + (f" ({key[2][:100]})" if key[2] else "")
