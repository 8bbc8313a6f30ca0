"""Run networks that other people's exporters wrote on engines, against onnxruntime alone, and write the table of docs/operators.md."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins.utils.numbers import Whole

from .accuracy import write
from .networks import ROOT

_SECONDS = 600.0  # for one network
_CLOSE = 1e-3  # of the largest magnitude


@dataclass(frozen=True)
class Row:
    """What an engine made of a network: largest difference to onnxruntime alone, by the largest magnitude; or why none."""

    network: str
    engine: str
    nodes: int
    error: float | None
    reason: str

    @property
    def text(self) -> str:
        """For the table."""
        return self.reason if self.error is None else f"{self.error:.1e}"


def load(folder: Path, name: str) -> tuple[Any, dict[str, Any]]:
    """A network, and inputs for it.

    ``name.onnx`` may lack large weights: ``name.json`` then gives the mean and the spread of each under ``stats``, and they
    are drawn anew; and ``inputs``, as lists of name, element type and dims.
    """
    import onnx
    from onnx import helper

    model = onnx.load(folder / f"{name}.onnx")
    facts = json.loads((folder / f"{name}.json").read_text())
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for holder in (model.graph, *model.functions):
        for node in holder.node:
            if node.op_type == "Constant":
                tensors.update(
                    (f"constant:{node.output[0]}", item.t) for item in node.attribute if item.name == "value"
                )
    for key, (mean, spread) in facts["stats"].items():
        if key in tensors:
            _fill(tensors[key], mean, spread, key)
    random = np.random.default_rng(0)
    inputs = {}
    for input_name, kind, dims in facts["inputs"]:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        if "mask" in input_name:
            inputs[input_name] = np.ones(dims, dtype)
        elif np.issubdtype(dtype, np.integer):
            inputs[input_name] = random.integers(3, 1000, dims).astype(dtype)
        else:
            inputs[input_name] = random.random(dims).astype(dtype)
    return model, inputs


def _fill(tensor: Any, mean: float, spread: float, key: str) -> None:
    from onnx import helper

    random = np.random.default_rng(zlib.crc32(key.encode()))
    values = mean + spread * random.standard_normal(tuple(tensor.dims)) if spread else np.full(tuple(tensor.dims), mean)
    if "var" in key and mean > 0:
        values = np.abs(values) + 1e-3
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    tensor.raw_data = np.ascontiguousarray(values.astype(dtype)).tobytes()


def compare(folder: Path, name: str, engines: Sequence[str]) -> list[Row]:
    """Run a network on engines, and by onnxruntime alone."""
    import onnxruntime

    from pytrtplugins.engines import build

    model, inputs = load(folder, name)
    nodes = len(model.graph.node)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        data = model.SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        expected = dict(zip([info.name for info in session.get_outputs()], session.run(None, inputs), strict=True))
    except Exception as error:  # of many kinds
        return [Row(name, engine, nodes, None, f"onnxruntime alone: {_short(error)}") for engine in engines]
    del session, data
    rows = []
    for engine in engines:
        try:
            built = build(model, engine=engine, progress=False)
            with built.create_context() as context:
                found = context.run(inputs)
            rows.append(Row(name, engine, nodes, max(_error(found[key], expected[key]) for key in expected), ""))
        except Exception as error:  # the row is the report
            rows.append(Row(name, engine, nodes, None, _short(error)))
    return rows


def _error(found: Any, expected: Any) -> float:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if not expected.size:
        return 0.0
    difference = np.abs(np.subtract(found, expected, dtype=np.float64))
    return float(difference.max() / max(float(np.abs(expected.astype(np.float64)).max()), 1e-12))


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}".replace("|", "/")


def run(folder: Path, names: Sequence[str], engines: Sequence[str], processes: int = 1) -> Iterator[Row]:
    """Each network in a process of its own, ``processes`` of them at a time."""
    with ThreadPoolExecutor(processes) as pool:
        for rows in pool.map(lambda name: _alone(folder, name, engines), names):
            yield from rows


def _alone(folder: Path, name: str, engines: Sequence[str]) -> list[Row]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, folder, name, engines), daemon=True)
    process.start()
    theirs.close()
    rows: list[Row] = []
    reason = f"more than {_SECONDS:.0f} s"
    try:
        if ours.poll(_SECONDS):
            rows = ours.recv()
    except EOFError:
        process.join()
        reason = f"the process ended with code {process.exitcode}"
    process.kill()
    process.join()
    return rows or [Row(name, engine, 0, None, reason) for engine in engines]


def _serve(pipe: Connection, folder: Path, name: str, engines: Sequence[str]) -> None:
    pipe.send(compare(folder, name, engines))


def table(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """A line for each network, as Markdown."""
    lines = ["| network | nodes | " + " | ".join(engines) + " |", "|---|---:|" + "---|" * len(engines)]
    for name in dict.fromkeys(row.network for row in rows):
        own = {row.engine: row for row in rows if row.network == name}
        cells = [str(next(iter(own.values())).nodes), *(own[engine].text for engine in engines)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Parse arguments, run, print or write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description=__doc__)
    add = parser.add_argument
    add("folder", type=Path, help="folder of NAME.onnx with NAME.json")
    add("--engine", nargs="+", default=["onnxruntime", "cpu"])
    add("-k", dest="words", default="", metavar="WORDS", help="only networks whose name has one of these words")
    add("--processes", type=Whole(1, 1024), default=1, help="networks at a time (default: %(default)s)")
    add("--write", action="store_true", help="write the table of the page")
    add("--docs", type=Path, default=ROOT / "docs" / "operators.md", help="the page (default: %(default)s)")
    given = parser.parse_args()
    names = sorted(path.stem for path in given.folder.glob("*.onnx"))
    names = [name for name in names if not given.words or any(word in name for word in given.words.split())]
    begun, rows = time.perf_counter(), []
    for row in run(given.folder, names, given.engine, given.processes):
        rows.append(row)
        print(f"{time.perf_counter() - begun:6.0f} s  {row.network}\t{row.engine}\t{row.text}", flush=True)
    close = {
        engine: sum(r.engine == engine and r.error is not None and r.error <= _CLOSE for r in rows)
        for engine in given.engine
    }
    line = ", ".join(f"{engine} {count}" for engine, count in close.items())
    print(f"{len(names)} networks; within {_CLOSE} of onnxruntime alone: {line}")
    if given.write:
        packages = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "openvino"))
        head = f"{len(names)} networks; within {_CLOSE} of onnxruntime alone: {line}. {packages}."
        write(given.docs, "exports", f"{head}\n\n{table(rows, given.engine)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
