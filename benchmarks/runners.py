"""One function per runner: what takes an image's tensor and gives the network's raw head."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.model.decompose import inline_plugins
from pytrtplugins.plugin.onnx_node import from_node, is_plugin_node

BASELINE = "OpenVINO by hand, FP32, no reorg, no region"
THREADS = int(os.environ.get("BENCHMARK_THREADS", "0")) or min(os.cpu_count() or 1, len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class Subject:
    """What is raced.

    Attributes:
        cfg: Path of the darknet cfg.
        weights: Path of its weights.
        model: The network as ONNX, with plugin nodes.
        x: One image, (1, 3, H, W) float32 in 0..1.
        calibration: Batches for INT8.
    """

    cfg: Path
    weights: Path
    model: onnx.ModelProto
    x: np.ndarray
    calibration: tuple[dict[str, np.ndarray], ...] = field(repr=False)


@dataclass(frozen=True)
class Runner:
    """A way to run the network.

    Attributes:
        name: What stands in the table.
        make: Takes a subject, gives the function to time.
        precision: Of the arithmetic.
        rounds: Timed rounds; few for what is slow.
        raw_head: Whether the output is the region layer's, so that it can be compared with darknet's.
    """

    name: str
    make: Callable[[Subject], Callable[[], np.ndarray]]
    precision: str = "FP32"
    rounds: int = 30
    raw_head: bool = True


def ours(
    engine: str, precision: str = "fp32", *, compute: bool = False
) -> Callable[[Subject], Callable[[], np.ndarray]]:
    """One of our engines; with ``compute`` the plugins run as Python code inside it."""

    def make(subject: Subject) -> Callable[[], np.ndarray]:
        model = without_decompositions(subject.model) if compute else subject.model
        calibration = MinMaxCalibrator(subject.calibration) if precision == "int8" else None
        built = ptp.build(
            model,
            engine=engine,
            precision=precision,
            calibration=calibration,
            threads=THREADS,
            settings=engine_class(engine).always(precision),
            progress=False,
        )
        context, name = built.create_context(), built.outputs[0].name
        return lambda: context.run({"data": subject.x})[name]

    return make


def darknet(subject: Subject) -> Callable[[], np.ndarray]:
    """darknet itself: Debian's libdarknet, or the library at DARKNET_LIBRARY; it computes on one thread."""
    from tests.oracles.libdarknet import LibDarknet

    network = LibDarknet().load(subject.cfg, subject.weights)
    return lambda: network.predict(subject.x[0])


def onnxruntime(subject: Subject) -> Callable[[], np.ndarray]:
    """onnxruntime as a careful user drives it: plugins written out with standard operators."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    data = inline_plugins(subject.model).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"data": subject.x})[0]


def openvino(model: onnx.ModelProto, x: np.ndarray) -> Callable[[], np.ndarray]:
    """OpenVINO as a careful user drives it."""
    import openvino as ov

    core = ov.Core()
    options: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": THREADS,
    }
    request = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU", options).create_infer_request()
    return lambda: request.infer({0: x}, share_inputs=True)[0]


def openvino_trunk(subject: Subject) -> Callable[[], np.ndarray]:
    """The baseline: no region, and a standard SpaceToDepth of the same shape in reorg's place."""
    return openvino(without_layers(subject.model), subject.x)


def openvino_inlined(subject: Subject) -> Callable[[], np.ndarray]:
    """OpenVINO by hand with reorg and region written out with standard operators."""
    return openvino(inline_plugins(subject.model), subject.x)


def opencv(subject: Subject) -> Callable[[], np.ndarray]:
    """OpenCV 4's darknet importer; its region layer decodes boxes, so its output is not darknet's."""
    import cv2

    if not hasattr(cv2.dnn, "readNetFromDarknet"):
        pytest.skip(f"OpenCV {cv2.__version__} has no darknet importer; OpenCV 4 has")
    cv2.setNumThreads(THREADS)
    net = cv2.dnn.readNetFromDarknet(str(subject.cfg), str(subject.weights))

    def run() -> np.ndarray:
        net.setInput(subject.x)
        return net.forward()

    return run


RUNNERS = (
    Runner("darknet (one thread)", darknet, rounds=3),
    Runner("OpenCV 4 dnn", opencv, rounds=10, raw_head=False),
    Runner("onnxruntime by hand", onnxruntime),
    Runner("OpenVINO by hand", openvino_inlined),
    Runner("pytrtplugins reference", ours("reference"), rounds=3),
    Runner("pytrtplugins onnxruntime", ours("onnxruntime")),
    Runner("pytrtplugins cpu", ours("cpu")),
    Runner("pytrtplugins cpu, layers as Python code", ours("cpu", compute=True)),
    Runner("pytrtplugins onnxruntime", ours("onnxruntime", "int8"), "INT8"),
    Runner("pytrtplugins cpu", ours("cpu", "int8"), "INT8"),
)


def without_decompositions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with plugins that have no decomposition, as a user's own usually have none."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        if is_plugin_node(node):
            plugin = from_node(node)
            node.CopyFrom(_opaque(type(plugin))(**plugin.fields()).as_node(node.input, node.output, node.name))
    changed.opset_import.append(onnx.helper.make_opsetid("benchmark", 1))
    return changed


def _opaque(cls: type[ptp.Plugin]) -> type[ptp.Plugin]:
    body = {"decompose": None, "__module__": __name__, "__qualname__": f"Opaque{cls.__name__}"}
    return ptp.plugin(namespace="benchmark", name=cls.__name__)(type(f"Opaque{cls.__name__}", (cls,), body))


def without_layers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same convolutions, without the work of region, and with SpaceToDepth in reorg's place."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    heads = []
    for node in list(changed.graph.node):
        if is_plugin_node(node) and node.op_type == "Reorg":
            stride = from_node(node).fields()["stride"]
            node.CopyFrom(onnx.helper.make_node("SpaceToDepth", node.input, node.output, node.name, blocksize=stride))
        elif is_plugin_node(node):
            heads.append(node.input[0])
            changed.graph.node.remove(node)
    del changed.graph.output[:]
    changed.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in heads
    )
    return changed
