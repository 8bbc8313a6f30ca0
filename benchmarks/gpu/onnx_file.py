"""A user's ONNX file on engine ``cuda`` beside onnxruntime and PyTorch, each as one CUDA graph, with the accuracy of verification.

    pytrt table face.onnx --task verification --data faces.npz --pixels 0..255 --engine cpu --algorithm entropy --work made
    python -m benchmarks.gpu.onnx_file face.onnx --data faces.npz --pixels 0..255 --cache made/entropy-on-200.cache --json rows.json

The first command calibrates, which needs no GPU. The file of --json is written whenever something was measured, so that a time limit
leaves what came before. Chosen kernels are in the user's cache: the same command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import CALIBRATORS
from pytrtplugins.doctor import machine
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.lower.pipeline import OPTIONAL_STEPS
from pytrtplugins.mlops.tables import LabelledImages, VerificationTask
from pytrtplugins.passes import CODES
from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.files import sha256_hex
from pytrtplugins.utils.numbers import IntRange
from pytrtplugins.vision import PIXELS

from .clock import Clock
from .onnxruntime_peer import session
from .ours import network
from .running import Running

LIMIT = {"fp32": 1e-2, "tf32": 1e-2, "fp16": 2e-2, "int8": 1.0}
"""Of the outputs beside onnxruntime's on a CPU, relative L2; INT8 is judged by the accuracy of the task."""
PRECISIONS = ("fp16", "int8", "fp32", "tf32")
_MIB = 1 << 20

Make = Callable[[onnx.ModelProto, np.ndarray, np.ndarray, Clock], Running]


def _pytorch(precision: str) -> Make:
    def make(model: onnx.ModelProto, x: np.ndarray, wanted: np.ndarray, clock: Clock) -> Running:
        from .onnx_module import pytorch

        return pytorch(model, x, precision, clock)

    return make


def _onnxruntime(model: onnx.ModelProto, x: np.ndarray, wanted: np.ndarray, clock: Clock) -> Running:
    return session(model, "FP32", x, wanted, clock)


PEERS: dict[str, Make] = {
    "pytorch-fp32": _pytorch("fp32"),
    "onnxruntime-fp32": _onnxruntime,
    "pytorch-tf32": _pytorch("tf32"),
}


class Record:
    """Rows that are on the disk after each step."""

    def __init__(self, path: Path | None, facts: Mapping[str, Any]) -> None:
        self._path, self._facts, self._began = path, dict(facts), time.perf_counter()
        self.rows: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def row(self, **facts: Any) -> Iterator[dict[str, Any]]:
        """A row; an error that ends it, or why it cannot be had here, becomes part of it, and the next one begins."""
        row = dict(facts)
        self.rows.append(row)
        try:
            yield row
            self._say(f"{_name(row)}: {_result(row)}")
        except pytest.skip.Exception as reason:
            row["skipped"] = str(reason)
            self._say(f"{_name(row)}: {reason}")
        except Exception as error:
            row["failure"] = f"{type(error).__name__}: {error}".partition("\n")[0]
            self._say(f"{_name(row)}: {row['failure']}")
        finally:
            self._write()

    @contextlib.contextmanager
    def step(self, row: dict[str, Any], name: str) -> Iterator[None]:
        """A part of a row, said before it begins, with its seconds."""
        self._say(f"{_name(row)}: {name}")
        began = time.perf_counter()
        try:
            yield
        finally:
            row.setdefault("seconds", {})[name] = round(time.perf_counter() - began, 2)
        self._write()

    def _say(self, text: str) -> None:
        print(f"{time.perf_counter() - self._began:6.1f} s  {text}", file=sys.stderr, flush=True)

    def _write(self) -> None:
        if self._path is not None:
            write_atomic(self._path, json.dumps({**self._facts, "rows": self.rows}, indent=1).encode())


def _name(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("engine", "precision") if key in row) + (
        f", batch {row['batch']}" if "batch" in row else ""
    )


def _result(row: Mapping[str, Any]) -> str:
    """A row's figures in a few words."""
    figures = {"us": "{:.1f} µs", "speed": "engine cuda is {:.2f} times as fast", "cosine_mean": "cosine {:.5f}",
               "tpr_at_001": "TPR at 0.001 {:.4f}", "error": "relative error {:.1e}"}  # fmt: skip
    return ", ".join(text.format(row[name]) for name, text in figures.items() if name in row) or "done"


def measure(given: argparse.Namespace, clock: Clock, record: Record) -> None:
    """A row for the reference, one for each batch and precision, and in it the times beside each peer."""
    model = onnx.load(given.model)
    seen, measured = LabelledImages(given.data).split(0.5)
    task = VerificationTask(measured, seen, given.pixels)
    with record.row(engine="onnxruntime", precision="fp32") as row:
        first = ptp.build(model, engine="onnxruntime", progress=False)
        with record.step(row, "accuracy"):
            figures, reference = task.measure(first, None)
            row |= figures
    table: Any = given.calibration
    if table is None and CODES.keys() & set(given.precisions):
        with record.row(calibration=given.algorithm) as row, record.step(row, "calibration"):
            batches = task.calibration(first.inputs, len(seen))
            table = calibrate(model, CALIBRATORS[given.algorithm](batches), engine="onnxruntime", progress=False)
    fixed = first.inputs[0].dims[0]
    for batch in given.batches:
        if isinstance(fixed, int) and batch != fixed:
            with record.row(engine="cuda", batch=batch):
                pytest.skip(
                    f"the model's batch is {fixed}; Do: pytrt repair {given.model} --also free-batch -o free.onnx"
                )
            continue
        with contextlib.ExitStack() as stack:
            peers = _Peers(model, _input(task, first, batch), first, clock, stack)
            for precision in given.precisions:
                with record.row(engine="cuda", precision=precision, batch=batch) as row:
                    settings = {"batch": [batch], "disable": list(given.disable)}
                    with record.step(row, "build"):
                        engine = ptp.build(
                            model,
                            engine="cuda",
                            precision=precision,
                            calibration=table if precision in CODES else None,
                            settings=settings,
                            progress=False,
                        )
                    with record.step(row, "accuracy"):
                        row |= task.measure(engine, reference, batch)[0]
                    _race(engine, peers, given.peers, row, record)


class _Peers:
    """What is raced on one batch, made when it is first needed."""

    def __init__(
        self, model: onnx.ModelProto, x: np.ndarray, first: ptp.Engine, clock: Clock, stack: contextlib.ExitStack
    ) -> None:
        with first.create_context() as context:
            self.wanted = np.array(context.run({first.inputs[0].name: x})[first.outputs[0].name])
        self.x, self.clock, self._model, self._stack = x, clock, model, stack
        self._made: dict[str, Running] = {}

    def __call__(self, name: str) -> Running:
        if name not in self._made:
            made = PEERS[name](self._model, self.x, self.wanted, self.clock)
            self._stack.callback(made.close)
            self._made[name] = made
        return self._made[name]

    def error(self, found: np.ndarray) -> float:
        """How far an output is from onnxruntime's on a CPU, in the norm of that."""
        return float(np.linalg.norm(found.reshape(self.wanted.shape) - self.wanted) / np.linalg.norm(self.wanted))


def _race(engine: ptp.Engine, peers: _Peers, names: list[str], row: dict[str, Any], record: Record) -> None:
    clock = peers.clock
    with contextlib.closing(network(engine, len(peers.x), clock, x=peers.x)) as ours:
        with record.step(row, "times"):
            row["error"] = error = peers.error(ours.run(peers.x))
            if not error < LIMIT[engine.precision]:
                raise ValueError(f"relative error {error:.2e}")
            assert ours.queue is not None
            row |= {"us": clock.gpu(ours.queue).median, "kernels": ours.kernels, **(ours.facts or {})}
            row |= {"activations_mib": (ours.bytes or 0) / _MIB, "weights_mib": (engine.weight_bytes() or 0) / _MIB}
        for name in names:
            with record.row(engine=name, batch=row["batch"], beside=row["precision"]) as other:
                with record.step(other, "build"):
                    peer = peers(name)
                with record.step(other, "times"):
                    other["error"] = peers.error(peer.run(peers.x))
                    times = clock.gpu(peer.queue, ours.queue)  # type: ignore[arg-type]  # all peers have one
                    other |= {"us": times.median, "cuda_us": times.beside, "speed": times.ratio}


def _input(task: VerificationTask, engine: ptp.Engine, batch: int) -> np.ndarray:
    (found,) = task.inputs(engine.inputs, batch).values()
    return np.asarray(found)


def summary(rows: list[dict[str, Any]]) -> str:
    """What the goals are about, one line for each row of engine ``cuda``."""
    lines = []
    for row in rows:
        if row.get("engine") != "cuda" or "us" not in row:
            continue
        speeds = {
            each["engine"]: each["speed"]
            for each in rows
            if (each.get("beside"), each.get("batch")) == (row["precision"], row["batch"]) and "speed" in each
        }
        beside = ", ".join(f"{speed:.2f} times as fast as {name}" for name, speed in speeds.items())
        memory = f"{row['weights_mib']:.1f} MiB of weights and {row['activations_mib']:.1f} of activations"
        accuracy = f"cosine {row['cosine_mean']:.5f}, TPR at 0.001 {row['tpr_at_001']:.4f}"
        lines.append(f"{_name(row)}: {row['us']:.1f} µs{', ' if beside else ''}{beside}; {accuracy}; {memory}")
    return "\n".join(lines)


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.onnx_file",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", type=Path, help="an ONNX file with one input of images, one output, and a free batch")
    add(
        "--data",
        type=Path,
        required=True,
        help="labelled images: a folder or an .npz file; half of the labels calibrate",
    )
    add("--pixels", choices=list(PIXELS), default="0..1", help="(default: %(default)s)")
    add(
        "--cache",
        dest="calibration",
        type=Path,
        metavar="FILE",
        help="scales for int8; without it they are measured first",
    )
    add("--algorithm", choices=list(CALIBRATORS), default="entropy", help="of that (default: %(default)s)")
    add(
        "--precision",
        dest="precisions",
        nargs="+",
        default=list(PRECISIONS[:3]),
        metavar="NAME|FILE.yaml",
        help=f"of {', '.join(PRECISIONS)}, or files of `pytrt precision search`; in this order (%(default)s)",
    )
    add(
        "--batch",
        dest="batches",
        type=IntRange(1, 4096),
        nargs="+",
        default=[1, 64],
        help="in this order (default: %(default)s)",
    )
    add("--peers", choices=list(PEERS), nargs="*", default=list(PEERS)[:2], help="(default: %(default)s)")
    add("--disable", choices=sorted(OPTIONAL_STEPS), nargs="*", default=[], help="steps of engine cuda to leave out: "
        "without cudnn-kernels and network-timing it builds in a fraction of the time")  # fmt: skip
    add("--json", type=Path, help="write the rows to this file, after each step")
    given = parser.parse_args()
    unknown = [each for each in given.precisions if each not in PRECISIONS and not each.endswith((".yaml", ".yml"))]
    if unknown:
        parser.error(f"--precisions: expected files .yaml, or some of {', '.join(PRECISIONS)}, found {unknown[0]!r}")
    import cupy

    facts = {"model": given.model.name, "sha256": sha256_hex(given.model), "data": given.data.name,
             "machine": machine(), "command": sys.argv[1:]}  # fmt: skip
    record = Record(given.json, facts)
    measure(given, Clock(cupy), record)
    print(summary(record.rows))
    return int(any("failure" in row for row in record.rows))


if __name__ == "__main__":
    sys.exit(main())
