"""A user's ONNX file on engine ``cuda`` beside PyTorch in FP32, each in one CUDA graph; the outputs are compared first.

    python -m benchmarks.gpu.onnx_file face.onnx --batches 1 64 --data faces.npz --pixels 0..255

PyTorch computes in full FP32, and with TF32 in a row of its own; the file may have the operators of embedding networks only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

import pytrtplugins as ptp
from pytrtplugins.calibration import CALIBRATORS
from pytrtplugins.engines import calibrate
from pytrtplugins.passes import CODES, prepare
from pytrtplugins.tables import LabelledImages, VerificationTask
from pytrtplugins.utils.files import write_atomic
from pytrtplugins.utils.numbers import Whole
from pytrtplugins.vision import PIXELS

from .clock import Clock
from .ours import network
from .torch_peer import captured

LIMIT = {"fp32": 1e-2, "tf32": 1e-2, "fp16": 2e-2, "int8": 1.0}
"""Of the outputs, relative L2; INT8 is judged by the accuracy of the task: `pytrt table`."""


class OnnxModule(torch.nn.Module):
    """The nodes of an ONNX model, one after the other.

    Args:
        model: With Conv, PRelu, Relu, Clip, Add, Sub, Mul, Flatten, Reshape, Gemm and BatchNormalization; one input, one output.

    Raises:
        ValueError: it has others.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        self.input, self.output, self.nodes = graph.input[0].name, graph.output[0].name, list(graph.node)
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.names = {name: f"array{index}" for index, name in enumerate(arrays)}
        for name, array in arrays.items():
            self.register_buffer(self.names[name], torch.from_numpy(np.array(array)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output's values."""
        values = {self.input: x, **{name: getattr(self, at) for name, at in self.names.items()}}
        for node in self.nodes:
            if node.op_type != "Constant":
                given = [values[name] if name else None for name in node.input]
                values[node.output[0]] = _computed(node, given)
        return values[self.output]


def _computed(node: onnx.NodeProto, given: list[Any]) -> torch.Tensor:
    found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    match node.op_type:
        case "Conv":
            return functional.conv2d(
                *given, stride=found.get("strides", [1, 1]), padding=found.get("pads", [0, 0])[:2], groups=found.get("group", 1)
            )  # fmt: skip
        case "PRelu":
            return functional.prelu(given[0], given[1].flatten())
        case "Relu":
            return functional.relu(given[0], inplace=False)
        case "Clip":
            return functional.hardtanh(given[0], 0.0, 6.0)
        case "Add" | "Sub" | "Mul":
            return getattr(torch, node.op_type.lower())(*given)
        case "Flatten" | "Reshape":
            return given[0].flatten(1)
        case "Gemm":
            return functional.linear(given[0], given[1] if found.get("transB") else given[1].T, given[2])
        case "BatchNormalization":
            return functional.batch_norm(
                given[0], given[3], given[4], given[1], given[2], eps=found.get("epsilon", 1e-5)
            )
    raise ValueError(f"{node.op_type} is not part of this benchmark")


def _pytorch(model: onnx.ModelProto, x: np.ndarray, precision: str, clock: Clock) -> Any:
    """What queues PyTorch's graph, and its outputs once it has run."""
    module = OnnxModule(prepare(model)).eval().cuda().to(memory_format=torch.channels_last)
    given = torch.from_numpy(x).cuda().to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    for kind in (torch.backends.cudnn, torch.backends.cuda.matmul):
        kind.allow_tf32 = precision == "tf32"
    with torch.inference_mode():
        found = torch.empty_like(module(given))
        stream = torch.cuda.ExternalStream(clock.stream.ptr)

        def run() -> None:
            with torch.inference_mode():
                found.copy_(module(given))

        graph = captured(stream, run)

    def queue() -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    return queue, found


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """For each precision: figures of the task; and for each batch microseconds of ours and of PyTorch beside it."""
    import cupy

    clock, model = Clock(cupy), onnx.load(given.model)
    seen, measured = LabelledImages(given.data).split(0.5)
    task = VerificationTask(measured, seen, given.pixels)
    first = ptp.build(model, engine="onnxruntime", progress=False)
    batches = task.calibration(first.inputs, len(seen))
    figures, reference = task.measure(first, None)
    yield {"engine": "onnxruntime", "precision": "fp32", **figures}
    peers = {
        (batch, precision): _pytorch(model, _input(task, first, batch), precision, clock)
        for batch in given.batches
        for precision in ("fp32", "tf32")
    }
    for precision in ("fp32", "tf32", "fp16", "int8"):
        table = None
        if precision in CODES:
            table = calibrate(model, CALIBRATORS[given.algorithm](batches), engine="onnxruntime", progress=False)
        engine = ptp.build(
            model, engine="cuda", precision=precision, calibration=table, settings={"batch": given.batches}, progress=False
        )  # fmt: skip
        figures, _ = task.measure(engine, reference)
        for batch in given.batches:
            yield {"engine": "cuda", "precision": precision, **figures, **_raced(engine, task, batch, peers, clock)}


def _input(task: VerificationTask, engine: ptp.Engine, batch: int) -> np.ndarray:
    (found,) = task.inputs(engine.inputs, batch).values()
    return np.asarray(found)


def _raced(engine: Any, task: VerificationTask, batch: int, peers: dict[Any, Any], clock: Clock) -> dict[str, Any]:
    x = _input(task, engine, batch)
    with contextlib.closing(network(engine, batch, clock)) as ours:
        row = {"batch": batch, "kernels": ours.kernels, "bytes": ours.bytes, **(ours.facts or {})}
        found = ours.run(x)
        for precision in ("fp32", "tf32"):
            queue, output = peers[batch, precision]
            queue()
            clock.stream.synchronize()
            row[f"error_{precision}"] = error = relative(found, output.cpu().numpy())
            assert error < LIMIT[engine.precision], f"{engine.precision}, batch {batch}: relative error {error:.2e}"
            times = clock.gpu(queue, ours.queue)
            row |= {"us": times.beside, f"pytorch_{precision}_us": times.median, f"times_{precision}": times.ratio}
    return row


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    """The distance of two arrays, in the norm of the second."""
    return float(np.linalg.norm(found.reshape(wanted.shape) - wanted) / np.linalg.norm(wanted))


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.onnx_file",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="an ONNX file with one input of images and one output")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="labelled images: a folder or an .npz file; half of the labels calibrate",
    )
    parser.add_argument("--algorithm", choices=list(CALIBRATORS), default="entropy", help="(default: %(default)s)")
    parser.add_argument("--pixels", choices=list(PIXELS), default="0..1", help="(default: %(default)s)")
    parser.add_argument("--batches", type=Whole(1, 4096), nargs="+", default=[1, 64], help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, help="keep the rows in this file")
    given = parser.parse_args()
    found = []
    for row in rows(given):
        found.append(row)
        print({key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
        if given.json:
            write_atomic(given.json, json.dumps(found, indent=1).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
