"""A drawn network against libdarknet: each layer alone, and the whole.

Errors are relative to the largest magnitude of darknet's output, but to no less than 0.01, and where a layer adds up what
it reads, a tenth of the largest value that it reads: what is left of numbers that cancel has their rounding errors, and
functions such as elu take 1 from a number near 1.

Alone, a layer of the converted model reads what libdarknet's own layers gave, so that only its own error is seen. End to
end the model runs as users run it; there a layer counts only where the network itself is steady: where its outputs stay
when the image changes in the sixth digit, since no two orders of summation agree where they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from darknet2caffe import Network, read_network, to_onnx
from darknet2caffe.layers import (
    Convolutional,
    Detection,
    Extra,
    Flatten,
    Layer,
    RegionLayer,
    ReorgLayer,
    Route,
    Shortcut,
    Softmax,
    Upsample,
)
from darknet2caffe.weights import Header
from tests.darknet2caffe.strategies import Case
from tests.oracles.darknet_worker import DarknetRun, DarknetWorker

ALONE, END_TO_END = 2e-5, 1e-4
_LEAST = 0.01
_CHANGE, _STEADY = 1e-6, 1e-5
_SUMS = (  # layers that add or subtract
    *("convolutional", "deconvolutional", "connected", "local", "shortcut", "batchnorm", "avgpool", "upsample", "crop"),
    "normalization",
)

FloatArray = Any


class MismatchError(AssertionError):
    """A layer differs from darknet's; the message says which and by how much."""


@dataclass(frozen=True)
class LayerResult:
    """One layer's errors, relative to the largest magnitude of darknet's output.

    Attributes:
        name: ``<index>_<type>``.
        kind: Type, and the form of layers that have several.
        activation: Its activation, or empty.
        alone: Error of the layer alone; None where what it reads is not finite.
        end_to_end: Error after all layers before it; None where the network is not steady there.
    """

    name: str
    kind: str
    activation: str
    alone: float | None
    end_to_end: float | None


def compare(case: Case, worker: DarknetWorker, folder: Path) -> list[LayerResult]:
    """Convert a network with random weights and compare every layer.

    Raises:
        CfgError: the converter refuses the network.
        DarknetCrashError: darknet does not survive it.
        MismatchError: shapes or numbers differ.
    """
    cfg, weights = case.write(folder), folder / "random.weights"
    network = _with_weights(read_network(cfg, dialect="pjreddie"), case, weights)
    generator = np.random.default_rng(case.seed)
    images = generator.random((case.images, *network.dims), dtype=np.float32)
    oracle = worker.run(cfg, weights, images)
    _check_shapes(network, oracle)
    model = to_onnx(network, fold=case.fold, batch=case.images, custom_layers="inline")
    found = _run(_whole(model, network), {"data": images})
    noise = 1 + _CHANGE * generator.choice([-1, 1], images.shape).astype(np.float32)
    moved = _run(_whole(model, network), {"data": images * noise})
    given = {
        f"{layer.name}.given": out.reshape(-1, *layer.dims)
        for layer, out in zip(network.layers, oracle.outputs, strict=True)
    }
    alone = _run(_apart(model, network), {"data.given": images, **given})
    broken = _broken(network, oracle)
    return [
        _result(network, layer, oracle, images, found, moved, alone, layer.index in broken)
        for layer in network.layers
        if layer.has_output
    ]


def _with_weights(network: Network, case: Case, path: Path) -> Network:
    """The network with the weights of a file that was written with the case's header."""
    network = network.with_random_weights(case.seed)
    header = Header(*case.header, seen=case.seed)
    arrays = [dict(network.parameters(layer)) for layer in network.layers]
    for given in arrays:
        if "rolling_variance" in given and case.seed % 2:  # so small that the epsilon counts
            given |= {"rolling_variance": given["rolling_variance"] * 1e-4, "scales": given["scales"] * 0.01}
    written = network.with_weights(arrays, header)
    path.write_bytes(written.weights.to_bytes())
    return read_network(network.cfg, path, dialect="pjreddie")


def _check_shapes(network: Network, oracle: DarknetRun) -> None:
    for layer, shape in zip(network.layers, oracle.shapes, strict=True):
        mine = layer.dims if layer.is_map else (int(np.prod(layer.dims)),)
        if mine != shape:
            raise MismatchError(f"{layer.name}: dims {mine}, darknet has {shape}")


def _broken(network: Network, oracle: DarknetRun) -> set[int]:
    """Layers with NaN, infinity or undefined values, and all that read them: each build goes on otherwise."""
    broken: set[int] = set()
    for layer in network.layers:
        out = oracle.outputs[layer.index]
        if not broken.isdisjoint(layer.inputs) or not np.isfinite(out).all() or _undefined(layer, out).any():
            broken.add(layer.index)
    return broken


def _undefined(layer: Layer, out: FloatArray) -> FloatArray:
    """Where darknet casts a float to an int beyond its range (activations.h, stair_activate)."""
    return (getattr(layer, "activation", "") == "stair") & (np.abs(out) >= 2**30)


def _result(
    network: Network,
    layer: Layer,
    oracle: DarknetRun,
    images: FloatArray,
    found: dict[str, FloatArray],
    moved: dict[str, FloatArray],
    alone: dict[str, FloatArray],
    broken: bool,
) -> LayerResult:
    expected = oracle.outputs[layer.index]
    inputs = [images if index < 0 else oracle.outputs[index] for index in layer.inputs]
    magnitude = max(float(np.abs(x).max()) for x in inputs)
    floor = max(_LEAST, 0.1 * magnitude if layer.type in _SUMS else 0.0)
    name = network.tensor_name(layer.index)
    error = whole = None
    if np.isfinite(magnitude):
        given = expected if layer.is_identity else alone[name]  # what it reads is what it gives
        expected = np.where(_undefined(layer, expected), given.reshape(expected.shape), expected)
        error = _relative(given, expected, floor)
        if not error <= ALONE:
            raise MismatchError(f"{layer.name} alone differs by {error:.2e}: {_where(given, expected)}")
        if not broken and _relative(moved[name], found[name], floor) <= _STEADY:
            whole = _relative(found[name], expected, floor)
            if not whole <= END_TO_END:
                raise MismatchError(f"{layer.name} differs end to end by {whole:.2e}: {_where(found[name], expected)}")
    return LayerResult(layer.name, _kind(layer), getattr(layer, "activation", ""), error, whole)


def _kind(layer: Layer) -> str:
    """Type and form."""
    match layer:
        case Flatten() | Extra():
            forms = [type(layer).__name__.lower()]
        case Convolutional():
            forms = ["groups"] * (layer.groups > 1) + ["flipped"] * layer.flipped
        case Route():
            forms = ["flat"] * layer.is_flat + ["one"] * layer.is_identity
        case Shortcut():
            forms = ["unequal"] * (layer.input_dims[1] != layer.dims)
        case Upsample():
            forms = ["reverse"] * layer.reverse
        case Softmax():
            forms = ["tree"] * bool(layer.tree) + ["groups"] * (layer.groups > 1)
        case ReorgLayer() | RegionLayer():
            fields = layer.plugin.fields()
            forms = [key for key in ("reverse", "softmax", "background") if fields.get(key)]
        case Detection():
            forms = ["softmax"] * layer.softmax
        case _:
            forms = []
    forms += ["batch norm"] * getattr(layer, "batch_normalize", False)
    return f"{layer.type}, {' '.join(forms)}" if forms else layer.type


def _relative(found: FloatArray, expected: FloatArray, floor: float) -> float:
    """Largest difference relative to the largest magnitude; NaN and infinity must be at the same places."""
    found, expected = np.ravel(found).astype(np.float64), np.ravel(expected).astype(np.float64)
    same = np.isclose(found, expected, rtol=0, atol=0, equal_nan=True)
    if same.all():
        return 0.0
    scale = max(float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)), floor)
    return float(np.abs(found - expected)[~same].max() / scale) if scale else float("inf")


def _where(found: FloatArray, expected: FloatArray) -> str:
    found, expected = np.ravel(found), np.ravel(expected)
    place = int(np.nanargmax(np.abs(np.nan_to_num(found) - np.nan_to_num(expected))))
    return f"value {place} is {found[place]}, darknet has {expected[place]}"


def _tensors(network: Network) -> dict[str, tuple[int, ...]]:
    layers = [layer for layer in network.layers if not layer.is_identity]
    return {"data": network.dims, **{layer.name: layer.dims for layer in layers}}


def _whole(model: onnx.ModelProto, network: Network) -> onnx.ModelProto:
    """The model with every layer as an output."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    return _with_outputs(copy, network)


def _apart(model: onnx.ModelProto, network: Network) -> onnx.ModelProto:
    """The model with every layer as an output, and inputs ``<name>.given`` in place of the layers that others read."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    tensors = _tensors(network)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    used: dict[str, None] = {}
    for node in copy.graph.node:
        used |= dict.fromkeys(name for name in node.input if name in tensors)
        node.input[:] = [f"{name}.given" if name in tensors else name for name in node.input]
    del copy.graph.input[:]
    copy.graph.input.extend(
        helper.make_tensor_value_info(f"{name}.given", onnx.TensorProto.FLOAT, [batch, *tensors[name]]) for name in used
    )
    return _with_outputs(copy, network)


def _with_outputs(model: onnx.ModelProto, network: Network) -> onnx.ModelProto:
    known = {value.name for value in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    wanted = [name for name in _tensors(network) if name in made - known]
    del model.graph.value_info[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    return model


def _run(model: onnx.ModelProto, values: dict[str, FloatArray]) -> dict[str, FloatArray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    needed = {value.name: np.ascontiguousarray(values[value.name], np.float32) for value in session.get_inputs()}
    return {**values, **dict(zip(names, session.run(names, needed), strict=True))}
