"""Convert an MXNet network to an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import ModelError, UsageError
from ..model.decompose import add_shapes
from ..utils.optional import onnx
from ..validation import validated
from . import simple, trained
from .attributes import LARGEST, Attributes
from .layer import BATCH, Dims, Layer, OnnxGraph, Tensor
from .params import FloatArray, read_params
from .symbol import Node, Symbol, read_symbol

__all__ = ["from_mxnet"]

_OPERATORS: dict[str, Callable[[Layer], Tensor]] = {
    **dict.fromkeys(("Convolution", "Convolution_v1"), trained.convolution),
    **dict.fromkeys(("BatchNorm", "BatchNorm_v1"), trained.batch_norm),
    **dict.fromkeys(("Pooling", "Pooling_v1"), simple.pooling),
    **dict.fromkeys(("Flatten", "flatten"), simple.flatten),
    **dict.fromkeys(("Concat", "concat"), simple.concat),
    **dict.fromkeys(("Reshape", "reshape"), simple.reshape),
    **dict.fromkeys(("SoftmaxOutput", "Softmax"), simple.softmax_output),
    **dict.fromkeys(("Dropout", "_copy", "identity", "BlockGrad", "stop_gradient"), simple.identity),
    "FullyConnected": trained.fully_connected,
    "LeakyReLU": trained.leaky_relu,
    "Activation": simple.activation,
    "clip": simple.clip,
    "softmax": simple.softmax,
    "log_softmax": simple.log_softmax,
    "SoftmaxActivation": simple.softmax_activation,
    "LogisticRegressionOutput": simple.logistic,
    "LinearRegressionOutput": simple.identity,
    "L2Normalization": simple.l2_normalization,
    "relu": simple.unary("Relu"),
    "sigmoid": simple.unary("Sigmoid"),
    "tanh": simple.unary("Tanh"),
    "exp": simple.unary("Exp"),
    "sqrt": simple.unary("Sqrt"),
    "abs": simple.unary("Abs"),
    "negative": simple.unary("Neg"),
}
for _op, _word in {"Add": "plus", "Sub": "minus", "Mul": "mul", "Div": "div", "Pow": "power"}.items():
    if _op != "Pow":
        for _name in (f"elemwise_{_op.lower()}", f"_{_word}", f"_{_word.title()}"):
            _OPERATORS[_name] = simple.elementwise(_op, broadcast=False)
        _OPERATORS[f"broadcast_{_op.lower()}"] = simple.elementwise(_op, broadcast=True)
    for _name, _reverse in ((f"_{_word}_scalar", False), (f"_r{_word}_scalar", True)):
        _OPERATORS[_name] = simple.scalar(_op, reverse=_reverse)
    for _name, _reverse in ((f"_{_word.title()}Scalar", False), (f"_R{_word.title()}Scalar", True)):
        _OPERATORS[_name] = simple.scalar(_op, reverse=_reverse)

_LABELLED = ("SoftmaxOutput", "Softmax", "LogisticRegressionOutput", "LinearRegressionOutput")
"""Their second input is what the training compares the result with."""
_KEEP_CHANNELS = {
    name for name in _OPERATORS if name.endswith(("_scalar", "Scalar")) or _OPERATORS[name] is simple.identity
} | {
    "BatchNorm",
    "BatchNorm_v1",
    "LeakyReLU",
    "Activation",
    "clip",
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "sqrt",
    "abs",
    "negative",
}
_AXES = ("depth", "height", "width")
_SHOWN = 5


def from_mxnet(
    symbol: str | Path,
    params: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    allow_extra: bool = False,
) -> onnx.ModelProto:
    """Convert a network of MXNet to ONNX. MXNet itself is not needed, and nothing in the files is executed.

    What is written computes what MXNet computes at inference, in float32: dropout is left out, BatchNorm has the stored
    statistics and, with ``fix_gamma``, scale 1; slopes of PReLU have dims (C, 1, 1), so that they lie along the channels. The
    batch is free. Tensors have the names of MXNet's nodes.

    Args:
        symbol: The file ``symbol.json``.
        params: The file ``.params``.
        shapes: Name of an input → its dims without the batch, such as ``{"data": (3, 112, 112)}``. Without it the dims that the file
            has for it, and else the channels that the first convolution reads, with free height and width.
        allow_extra: Whether the .params file may have arrays that the network has no parameters for.

    Returns:
        The model, with the dims of all tensors as far as they are known.

    Raises:
        ModelError: a file is broken, an operator or one of its attributes is not supported, or the parameters do not fit the
            network; ``.node`` says which node.
        UsageError: ``shapes`` names what is no input.
        MissingExtraError: onnx is not installed.
    """
    network, arrays = read_symbol(symbol), read_params(params)
    if not allow_extra:
        _check_extra_arrays(network, arrays, Path(params))
    needed = _reachable_nodes(network)
    nodes = [network.nodes[number] for number in sorted(needed)]
    graph = OnnxGraph(
        Path(symbol).name.removesuffix(".json").removesuffix("-symbol"), (node.name for node in network.nodes)
    )
    tensors: dict[str, Tensor] = {}
    remaining_shapes = dict(shapes or {})
    readers = _readers(network, needed)
    for node in nodes:
        if not node.is_variable:
            tensors[node.name] = _convert_operator(node, network, tensors, arrays, graph)
        elif node.name not in arrays and _is_data(node, readers, network):
            dims = _input_dims(node, remaining_shapes.pop(node.name, None), network, readers, arrays)
            tensors[node.name] = Tensor(node.name, (None, *dims))
            graph.model.graph.input.append(graph.info(node.name, [BATCH, *_name_free_dims(dims)]))
    if remaining_shapes:
        input_names = ", ".join(repr(info.name) for info in graph.model.graph.input)
        raise UsageError(
            f"{next(iter(remaining_shapes))!r} is no input of {symbol}.\nInputs: {input_names}", path=Path(symbol)
        )
    return _add_outputs(graph, network, tensors)


def _convert_operator(
    node: Node, network: Symbol, tensors: Mapping[str, Tensor], arrays: Mapping[str, FloatArray], graph: OnnxGraph
) -> Tensor:
    """Convert one operator, and return its output tensor."""
    read = _OPERATORS.get(node.op)
    if read is None:
        raise node.error(
            "this operator is not supported",
            "Do: export the network in MXNet itself (mx.onnx.export_model), and look at the result with pytrt repair",
        )
    entries = node.inputs[:1] if node.op in _LABELLED else node.inputs
    sources = [network.nodes[number] for number, _ in entries]
    for source, (_, output) in zip(sources, entries, strict=True):
        is_statistic = source.is_variable and node.op.startswith("BatchNorm")
        if output and not is_statistic:
            raise node.error(
                f"it reads output {output} of node {source.name[:200]!r}; operators with several are not supported"
            )
    if not sources:
        raise node.error("it reads nothing")
    for source in sources:
        if source.is_variable and source.name not in tensors and source.name not in arrays:
            raise node.error(
                f"the parameter {source.name[:200]!r} is missing from the .params file",
                "Causes: (1) the .params file belongs to another network; (2) it was saved before the symbol was changed.\n"
                "Do: name the .params file that was saved with this symbol.json",
            )
    layer = Layer(node, sources, tensors, arrays, graph)
    tensor = read(layer)
    if node.op not in _LABELLED:
        layer.attributes.finish()
    return tensor


# -- what is needed, and what is an input ----------------------------------------------------------------------------------


def _reachable_nodes(network: Symbol) -> set[int]:
    """Return the indices of the nodes that lead to an output."""
    pending = [number for number, _ in network.heads]
    numbers: set[int] = set()
    while pending:
        number = pending.pop()
        if number not in numbers:
            numbers.add(number)
            node = network.nodes[number]
            entries = node.inputs[:1] if node.op in _LABELLED else node.inputs
            pending += (source for source, _ in entries)
    return numbers


def _readers(network: Symbol, needed: Iterable[int]) -> dict[str, list[Node]]:
    """Return node name → the nodes that read it as data: as first input, or as any input of a sum or concatenation."""
    readers: dict[str, list[Node]] = {}
    for number in sorted(needed):
        node = network.nodes[number]
        reads_all_as_data = node.op.lower().startswith(
            ("elemwise", "broadcast", "concat", "_plus", "_minus", "_mul", "_div")
        )
        for source, _ in node.inputs if reads_all_as_data else node.inputs[:1]:
            readers.setdefault(network.nodes[source].name, []).append(node)
    return readers


def _is_data(node: Node, readers: Mapping[str, list[Node]], network: Symbol) -> bool:
    """Return whether a variable without a parameter is a network input: a node reads it as data, or it is an output."""
    return node.name in readers or any(network.nodes[number] is node for number, _ in network.heads)


def _input_dims(
    node: Node,
    shape: Sequence[int] | None,
    network: Symbol,
    readers: Mapping[str, list[Node]],
    arrays: Mapping[str, FloatArray],
) -> Dims:
    """Return the dims of a network input without the batch."""
    if shape is not None:
        if any(type(size) is not int or not 1 <= size <= LARGEST for size in shape):
            raise UsageError(f"the shape of {node.name!r} is {list(shape)}; expected numbers of 1 to {LARGEST:,}")
        return tuple(shape)
    attributes = Attributes(
        Node(node.path, node.op, node.name, {"shape": node.attributes.get("__shape__", "None")}, ())
    )
    dims = attributes.dims("shape", ())
    if len(dims) > 1 and all(dims[1:]):
        return dims[1:]
    names_to_follow, seen = [node.name], {node.name}
    for name in names_to_follow:
        for reader in readers.get(name, ()):
            weight = network.nodes[reader.inputs[1][0]].name if len(reader.inputs) > 1 else ""
            array = arrays.get(weight)
            if array is not None and reader.op.startswith("Convolution") and array.ndim > 2:
                group = Attributes(reader).integer("num_group", 1, least=1)
                return array.shape[1] * group, *(None,) * (array.ndim - 2)
            if array is not None and reader.op == "FullyConnected" and array.ndim == 2:
                return (array.shape[1],)
            if reader.op in _KEEP_CHANNELS and reader.name not in seen:
                seen.add(reader.name)
                names_to_follow.append(reader.name)
    raise node.error(
        "nothing says which dims this input has",
        f"Do: pytrt import mxnet SYMBOL PARAMS -o OUT.onnx --shape {node.name[:100]}=3x112x112",
    )


def _name_free_dims(dims: Dims) -> list[int | str]:
    """Return an input's dims with names for the free ones, by their position from the last axis."""
    last_axis_names = _AXES[len(_AXES) - min(len(dims) - 1, len(_AXES)) :]
    axis_names = ["", *(f"axis{number}" for number in range(len(dims) - 1 - len(last_axis_names))), *last_axis_names]
    return [axis_name if size is None else size for axis_name, size in zip(axis_names, dims, strict=False)]


# -- checks and the end ----------------------------------------------------------------------------------------------------


def _check_extra_arrays(network: Symbol, arrays: Mapping[str, FloatArray], path: Path) -> None:
    names = {node.name for node in network.nodes}
    implied_names = {f"{node.name}_moving_{kind}" for node in network.nodes for kind in ("mean", "var") if node.inputs}
    extra = [name for name in arrays if name not in names | implied_names]
    if extra:
        first_names = ", ".join(repr(name[:100]) for name in extra[:_SHOWN])
        remaining_text = f" (and {len(extra) - _SHOWN:,} more)" if len(extra) > _SHOWN else ""
        raise ModelError(
            f"{path}: {len(extra):,} of {len(arrays):,} arrays have no parameter in {network.path}: {first_names}{remaining_text}.\n"
            "Causes: (1) the two files belong to different networks; (2) the symbol was cut, and the parameters were not.\n"
            "Do: name the .params file that was saved with this symbol.json, or leave these arrays out with --allow-extra",
            path=path,
            extra=tuple(extra[:1000]),
        )


def _add_outputs(graph: OnnxGraph, network: Symbol, tensors: Mapping[str, Tensor]) -> onnx.ModelProto:
    """Add the outputs to the model, check it, and return it."""
    written = {name for node in graph.model.graph.node for name in node.output}
    for number, output in dict.fromkeys(network.heads):
        node = network.nodes[number]
        if output or node.name not in tensors:
            raise node.error(f"the network's output is output {output} of this node, which is not supported")
        tensor = tensors[node.name]
        if node.name not in written:
            graph.node("Identity", [tensor.name], node.name)  # an output keeps its name
            written.add(node.name)
        graph.model.graph.output.append(graph.info(node.name, tensor.dims))
    if not graph.model.graph.node:
        raise network.nodes[network.heads[0][0]].error("the network has no operators")
    return add_shapes(validated(graph.model))
