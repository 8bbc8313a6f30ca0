"""Convert a network to ONNX, as a model in memory or directly into a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal

from pytrtplugins.errors import UsageError
from pytrtplugins.model.data_file import removing_stale_data, write_apart
from pytrtplugins.utils.atomic import atomic_path
from pytrtplugins.utils.optional import onnx

from ._onnx_activations import LEAKY_SLOPE, chosen_activation
from ._onnx_layers import write_layer
from ._onnx_writer import Constant, OnnxWriter, Options, length_delimited
from .fold import BnEps, check_bn_eps
from .network import Network

__all__ = ["LEAKY_SLOPE", "Activation", "BatchSize", "CustomLayers", "chosen_activation", "to_onnx", "write_onnx"]

Activation = Literal["as-is", "relu", "leaky"]
BatchSize = int | Literal["dynamic"]
CustomLayers = Literal["nodes", "functions", "inline"]

MAX_BYTES = 2**31 - 2**20
"""protobuf reads no file of 2 GiB; a little is left for the graph."""
_ALIGNMENT = 4096  # of external data: pages, so that readers can map it


def to_onnx(
    network: Network,
    *,
    fold: bool = True,
    activation: Activation = "as-is",
    bn_eps: BnEps | None = None,
    input_size: tuple[int, int] | None = None,
    batch: BatchSize = 1,
    custom_layers: CustomLayers = "nodes",
) -> onnx.ModelProto:
    """Convert a darknet network to ONNX.

    Args:
        network: The network, with weights.
        fold: Write batch normalization into the convolutions; otherwise as BatchNormalization nodes.
        activation: ``"relu"`` turns every leaky ReLU into a ReLU, ``"leaky"`` the other way; both change the results.
        bn_eps: Which of darknet's two batch normalizations to follow: its CPU code's or its CUDA code's. None: that of
            the network's dialect; ``"darknet-cpu"`` for pjreddie's, ``"darknet-gpu"`` for the fork's.
        input_size: Width and height to use instead of the cfg's.
        batch: Images per run, or ``"dynamic"``.
        custom_layers: ``"nodes"`` leaves Reorg, Region and Yolo as plugin nodes; ``"functions"`` adds their
            definition as ONNX functions; ``"inline"`` writes standard operators instead.

    Returns:
        A model with the input ``data`` (N, C, H, W): float32, RGB, 0..1. Its outputs are the heads in layer order, and
        the last layer; values and layout are darknet's ``layer.output``. ``metadata_props["darknet.net"]`` holds the
        input size and the heads' fields as JSON.

    Raises:
        UsageError: the network has no weights, or an argument is none of the values above; or the weights have 2 GiB and
            more, which only `write_onnx` can write.
        CfgError: a layer does not accept ``input_size``.
    """
    model, constants = _skeleton(network, fold, activation, bn_eps, input_size, batch, custom_layers)
    if sum(constant.size_bytes for constant in constants) > MAX_BYTES:
        raise UsageError(
            f"{network.name}: its weights have 2 GiB and more, and no ONNX model in memory can hold them.\n"
            "Do: write_onnx(network, path), which puts them into a file beside the model."
        )
    for constant in constants:
        model.graph.initializer.add(
            name=constant.name, dims=constant.dims, data_type=1, raw_data=constant.data().tobytes()
        )
    return model


def write_onnx(
    network: Network,
    path: str | Path,
    *,
    external_data: bool | None = None,
    fold: bool = True,
    activation: Activation = "as-is",
    bn_eps: BnEps | None = None,
    input_size: tuple[int, int] | None = None,
    batch: BatchSize = 1,
    custom_layers: CustomLayers = "nodes",
) -> tuple[Path, ...]:
    """Convert a darknet network into an ONNX file, with the memory of about one layer.

    A file that is there is replaced when the new one is whole. With ``external_data`` the weights go into ``PATH.DIGEST.data``
    beside the model, a name made of their contents; None does so where they have 2 GiB and more. All else is as for `to_onnx`.

    Returns:
        The files written: the model, and its data where they are apart.

    Raises:
        UsageError: as `to_onnx`.
        CfgError: as `to_onnx`.

    Example:
        >>> write_onnx(network, "yolov2-voc.onnx", custom_layers="inline")  # doctest: +SKIP
    """
    path = Path(path)
    model, constants = _skeleton(network, fold, activation, bn_eps, input_size, batch, custom_layers)
    if external_data is None:
        external_data = sum(constant.size_bytes for constant in constants) > MAX_BYTES
    if not external_data:
        with removing_stale_data(path), atomic_path(path) as temporary, temporary.open("wb") as file:
            _stream(file, model, constants)
        return (path,)

    def write_model(temporary: Path, location: str) -> None:
        for tensor in model.graph.initializer:
            if tensor.data_location:
                tensor.external_data.add(key="location", value=location)
        temporary.write_bytes(model.SerializeToString())

    return write_apart(path, lambda file: _write_external(file, model, constants), write_model)


def _skeleton(
    network: Network,
    fold: bool,
    activation: str,
    bn_eps: BnEps | None,
    input_size: tuple[int, int] | None,
    batch: BatchSize,
    custom_layers: str,
) -> tuple[onnx.ModelProto, Sequence[Constant]]:
    """The model without its float32 constants, and these."""
    chosen_activation("linear", activation)
    if custom_layers not in ("nodes", "functions", "inline"):
        raise UsageError(f"custom_layers={custom_layers!r}: expected one of nodes, functions, inline")
    bn_eps = check_bn_eps(bn_eps, network.dialect)
    if not (batch == "dynamic" or (isinstance(batch, int) and batch >= 1)):
        raise UsageError(f"batch={batch!r}: expected a number of at least 1, or 'dynamic'")
    if input_size is not None:
        network = network.with_input_size(*input_size)
    writer = OnnxWriter(network, Options(fold, activation, bn_eps, "N" if batch == "dynamic" else batch))
    writer.write(write_layer)
    model = writer.model if custom_layers == "nodes" else _rewritten(writer, custom_layers)
    return model, writer.constants


def _rewritten(writer: OnnxWriter, custom_layers: str) -> onnx.ModelProto:
    """The model with plugins written out; the constants are inputs while shapes are inferred."""
    from pytrtplugins.model import decompose

    helper, model = onnx.helper, writer.model
    inputs = len(model.graph.input)
    model.graph.input.extend(
        helper.make_tensor_value_info(constant.name, 1, constant.dims) for constant in writer.constants
    )
    rewrite = decompose.add_functions if custom_layers == "functions" else decompose.inline_plugins
    rewritten: onnx.ModelProto = rewrite(model)
    del rewritten.graph.input[inputs:]
    return rewritten


def _stream(file: IO[bytes], model: onnx.ModelProto, constants: Sequence[Constant]) -> None:
    """Write the model with its constants inside: a protobuf message whose longest field is never in memory as a whole.

    On the wire a message is its fields one after the other; ModelProto.graph is field 7, GraphProto.initializer 5,
    TensorProto.raw_data 9.
    """
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    tensor = type(model.graph.initializer.add())
    model.ClearField("graph")
    heads = [tensor(name=c.name, dims=c.dims, data_type=1).SerializeToString() for c in constants]
    starts = [head + length_delimited(9, constant.size_bytes) for head, constant in zip(heads, constants, strict=True)]
    sizes = [len(start) + constant.size_bytes for start, constant in zip(starts, constants, strict=True)]
    total = len(graph) + sum(len(length_delimited(5, size)) + size for size in sizes)
    file.write(model.SerializeToString() + length_delimited(7, total) + graph)
    for constant, start, size in zip(constants, starts, sizes, strict=True):
        file.write(length_delimited(5, size) + start)
        file.write(constant.data().data)


def _write_external(file: IO[bytes], model: onnx.ModelProto, constants: Sequence[Constant]) -> None:
    """Write the constants sequentially, and record their offsets in the model."""
    for constant in constants:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        tensor = model.graph.initializer.add(name=constant.name, dims=constant.dims, data_type=1, data_location=1)
        entries = {"offset": file.tell(), "length": constant.size_bytes}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        file.write(constant.data().data)
