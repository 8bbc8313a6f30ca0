"""Run a folder of ONNX files, as other projects keep them for their tests, on engines, and compare with onnxruntime.

python -m benchmarks.files FOLDER                            all files on all engines
python -m benchmarks.files FOLDER --show wrong --json now.json --before earlier.json

A file is NAME.onnx; folders test_data_set_* beside it have its inputs. Without them inputs are random numbers of the declared
types and dims. What is right says onnxruntime, without optimizations, on the file as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.numbers import IntRange

from .forms.compare import difference
from .forms.exclusions import RANDOM
from .forms.oracles import run_literal
from .forms.report import packages
from .forms.runners import run_model
from .node_tests import CRASHED, FAILED, HUNG, PASSED, REFUSED, WRONG, Outcome, run_cases

__all__ = ["File", "ask_oracle", "find_files", "read_oracle", "run_file", "summary"]

ENGINES = ("onnxruntime", "cpu", "reference", "cuda")
OTHER, NO_ORACLE, UNNAMED = "by another library", "no oracle", "unnamed"
REFUSED_ALONE = "refused, onnxruntime runs it"
KINDS = (PASSED, OTHER, NO_ORACLE, REFUSED, REFUSED_ALONE, UNNAMED, WRONG, FAILED, CRASHED, HUNG)
_ATTEMPTS = ((2, 3, 2), (1, 1, 1), (1, 4, 4), (2, 2, 3), (1, 8, 2), (1, 16, 4), (1, 32, 4), (1, 64, 3), (1, 224, 4))
"""Sizes of a free first axis and of other free axes, and the rank where none is declared."""
_LOOSE, _LOOSE_CODES = 30.0, 1000.0
"""Factors on the tolerance of one operator: for networks, and for those that round to codes inside."""
_NETWORK, _NEAR, _NEAR_CODES = 10, 2e-3, 0.15
"""Nodes of a network, how far its numbers may be off by the measure of the largest, and the same for one that rounds to codes inside:
a number between two codes becomes the other one in another order of sums, which all layers behind it see."""
_LARGEST = 1 << 28
"""Elements of an input that is drawn."""


@dataclass(frozen=True)
class File:
    """One file.

    Attributes:
        name: Its path below the folder.
        path: Its path.
        oracle: File of its inputs and expected outputs, which `ask_oracle` writes.
    """

    name: str
    path: Path
    oracle: Path


def find_files(folder: Path, kept: Path, words: Sequence[str] = ("",), every: int = 1) -> list[File]:
    """Every N-th of the ONNX files below a folder whose name has one of the words, ordered by name; ``kept`` is for the oracle."""
    paths = sorted(path for path in folder.rglob("*.onnx") if path.is_file())
    files = [File(str(path.relative_to(folder)), path, kept / str(index)) for index, path in enumerate(paths)]
    return [file for file in files if any(word in file.name for word in words)][::every]


def ask_oracle(file: File) -> Outcome:
    """Find inputs on which onnxruntime runs a file; keep them and its outputs in the file's place for them."""
    inputs: dict[str, Any] = {}
    expected, reason = None, ""
    try:
        model = onnx.load(file.path)
        candidates = _inputs(model, file)
        if {node.op_type for node in _nodes(model.graph)} & RANDOM:
            inputs, reason = next(candidates), "random numbers"
        else:
            for drawn in candidates:
                inputs = inputs or drawn
                try:
                    results = run_literal(model, drawn)
                except Exception as error:  # of onnxruntime's own types
                    reason = reason or f"onnxruntime: {_short(error)}"
                    continue
                if difference(results, run_literal(model, drawn), "", False, 1.0):
                    reason = "random numbers"
                    break
                if expected is None or not _has_nan(results):
                    expected, inputs, reason = results, drawn, ""
                if not _has_nan(results):
                    break
    except Exception as error:  # a file that is no model too
        reason = f"{type(error).__name__}: {_short(error)}"
    write_atomic(file.oracle, pickle.dumps((inputs, expected)))
    return Outcome(PASSED if expected is not None else REFUSED, reason)


def read_oracle(file: File) -> tuple[dict[str, Any], list[Any] | None]:
    """Inputs of a file, and its outputs; no inputs where onnxruntime's process ended, and no outputs where it does not run the file."""
    return pickle.loads(file.oracle.read_bytes()) if file.oracle.exists() else ({}, None)


def run_file(file: File, runner: str) -> Outcome:
    """Run a file in this process; the kind of what came of it is one of `KINDS`."""
    from pytrtplugins.errors import PytrtpluginsError
    from pytrtplugins.model import load_onnx

    inputs, expected = read_oracle(file)
    try:
        model = onnx.load(file.path)
    except Exception as unreadable:  # no model: what our reader says counts
        try:
            load_onnx(file.path)
        except PytrtpluginsError as error:
            return Outcome(REFUSED, f"{type(error).__name__}: {_short(error)}")
        except Exception as error:
            return Outcome(FAILED, f"{type(error).__name__}: {_short(error)}")
        return Outcome(FAILED, f"our reader takes what onnx refuses: {_short(unreadable)}")
    nodes = list(_nodes(model.graph))
    inner = [node for function in model.functions for node in _nodes(function)]
    names = {name for node in (*nodes, *inner) for name in (node.name, node.op_type, *node.input, *node.output)}
    infos = (*model.graph.input, *model.graph.output, *model.graph.initializer)
    outcome = run_model(model, inputs, runner, [*names, *(info.name for info in infos)])
    if outcome.kind == REFUSED:
        kind = UNNAMED if outcome.values else REFUSED if expected is None else REFUSED_ALONE
        return Outcome(kind, outcome.reason)
    if outcome.kind != PASSED:
        return outcome
    if expected is None:
        return Outcome(NO_ORACLE)
    codes = any("Quantize" in node.op_type or "Integer" in node.op_type or "QLinear" in node.op_type for node in nodes)
    half = {TensorProto.FLOAT16, TensorProto.BFLOAT16} & _types(model, nodes)
    operator, loose = ("QLinearConv", _LOOSE_CODES) if codes else ("", _LOOSE)
    text = difference(expected, outcome.values, operator, False, loose, bool(half))
    if len(nodes) >= _NETWORK and _near(expected, outcome.values, _NEAR_CODES if codes else _NEAR):
        text = ""
    return Outcome(WRONG, text) if text else Outcome(OTHER if outcome.reason else PASSED, outcome.reason)


def _inputs(model: onnx.ModelProto, file: File) -> Iterator[dict[str, Any]]:
    """Inputs to try: the test data beside the file, then random ones."""
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {sparse.values.name for sparse in model.graph.sparse_initializer}
    infos = [info for info in model.graph.input if info.name not in constants]
    for folder in sorted(file.path.parent.glob("test_data_set_*")):
        tensors = [_read_tensor(folder / f"input_{index}.pb") for index in range(len(infos))]
        if all(tensor is not None for tensor in tensors):
            yield {info.name: tensor for info, tensor in zip(infos, tensors, strict=True)}
    for attempt in range(2 * len(_ATTEMPTS)):
        rng = np.random.default_rng([attempt, zlib.crc32(file.name.encode())])
        yield {info.name: _random(info, _ATTEMPTS[attempt // 2], bool(attempt % 2), rng) for info in infos}


def _near(expected: Sequence[Any], results: Sequence[Any], limit: float) -> bool:
    """Whether all numbers of a network are near by the measure of each output's largest one: rounding grows from layer to layer."""
    for right, result in zip(expected, results, strict=True):
        result = np.asarray(result)
        if (right.dtype, right.shape) != (result.dtype, result.shape):
            return False
        if right.dtype.kind not in "fV" or not np.isfinite(right.astype(np.float64)).all():
            if difference([right], [result], "", False, _LOOSE):
                return False
        elif np.abs(right - result).max(initial=0) > limit * np.abs(right).max(initial=0):
            return False
    return True


def _has_nan(arrays: Sequence[Any]) -> bool:
    return any(array.dtype.kind in "fV" and np.isnan(array.astype(np.float64)).any() for array in arrays)


def _read_tensor(path: Path) -> Any:
    try:
        return numpy_helper.to_array(onnx.load_tensor(path))
    except Exception:  # absent, or a sequence
        return None


def _random(info: onnx.ValueInfoProto, sizes: tuple[int, int, int], zero: bool, rng: np.random.Generator) -> Any:
    """An array for an input; whole numbers are small, since they may be indices."""
    tensor = info.type.tensor_type
    if not tensor.elem_type:
        raise ValueError(f"input {info.name!r} is no tensor with a type")
    first, other, rank = sizes
    if tensor.HasField("shape"):
        dims = [
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else (other if axis else first)
            for axis, dim in enumerate(tensor.shape.dim)
        ]
    else:
        dims = [first, *[other] * rank][:rank]
    if np.prod(dims, dtype=np.float64) > _LARGEST:
        raise ValueError(f"input {info.name!r} has dims {dims}")
    if tensor.elem_type == TensorProto.STRING:
        return rng.choice(np.array(["a", "b", "word"], object), dims)
    if tensor.elem_type == TensorProto.BOOL:
        return np.zeros(dims, bool) if zero else rng.integers(0, 2, dims).astype(bool)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype.kind in "iu":
        low, high = (0, 1) if zero else (-100, 101) if dtype == np.int8 else (0, 201) if dtype == np.uint8 else (0, 2)
        return rng.integers(low, high, dims).astype(dtype)
    return (rng.random(dims) if zero else rng.uniform(-2, 2, dims)).astype(dtype)


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for item in node.attribute:
            for inner in (*([item.g] if item.HasField("g") else []), *item.graphs):
                yield from _nodes(inner)


def _types(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> set[int]:
    infos = chain(model.graph.input, model.graph.output)
    casts = (item.i for node in nodes if node.op_type == "Cast" for item in node.attribute if item.name == "to")
    return {
        *(info.type.tensor_type.elem_type for info in infos),
        *(tensor.data_type for tensor in model.graph.initializer),
        *casts,
    }


def summary(outcomes: Mapping[str, Mapping[str, Outcome]], before: Mapping[str, Mapping[str, Outcome]]) -> str:
    """How many files each engine computes, as Markdown; with the numbers before where they were others."""
    lines = ["| run by | " + " | ".join(_HEADINGS[kind] for kind in KINDS) + " |", "|---|" + "---:|" * len(KINDS)]
    for runner, found in outcomes.items():
        now, then = (Counter(item.kind for item in items.values()) for items in (found, before.get(runner, {})))
        cells = [
            f"{now[kind]:,}" if not then or then[kind] == now[kind] else f"{then[kind]:,} → {now[kind]:,}"
            for kind in KINDS
        ]
        lines.append(f"| {runner} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


_HEADINGS = {
    PASSED: "right",
    OTHER: "right, by another library",
    NO_ORACLE: "runs, no oracle",
    REFUSED: "refused by name",
    REFUSED_ALONE: "refused by name, onnxruntime runs it",
    UNNAMED: "refused without a name",
    WRONG: "wrong",
    FAILED: "foreign errors",
    CRASHED: "crashed",
    HUNG: "hung",
}


def main() -> int:
    """Parse arguments, run, print, write the report."""
    arguments = _arguments()
    before = _read_report(arguments.before) if arguments.before else {}
    with tempfile.TemporaryDirectory() as folder:
        report = _run(find_files(arguments.folder, Path(folder), arguments.words, arguments.every), arguments)
    if not report["oracle"]:
        print(f"{arguments.folder}: no file .onnx there")
        return 2
    oracle = Counter(kind for kind, _ in report["oracle"].values())
    print(f"{len(report['oracle']):,} files, {oracle[PASSED]:,} with an oracle; {report['packages']}")
    outcomes = {
        runner: {name: Outcome(*row) for name, row in rows.items()} for runner, rows in report["engines"].items()
    }
    print(summary(outcomes, before))
    return int(
        any(item.kind in (WRONG, FAILED, CRASHED, HUNG) for found in outcomes.values() for item in found.values())
    )


def _run(files: Sequence[File], arguments: argparse.Namespace) -> dict[str, Any]:
    """Run files on engines; the report is written after each, so that what ended early has those that were done."""
    report: dict[str, Any] = {"packages": packages(), "oracle": {}, "engines": {}}
    runs: dict[str, Callable[[File], Outcome]] = {
        "oracle": ask_oracle,
        **{runner: partial(run_file, runner=runner) for runner in arguments.engine},
    }
    for runner, run in runs.items():
        begin = time.perf_counter()
        rows = {
            file.name: outcome for file, outcome in run_cases(files, run, arguments.processes, arguments.time_limit)
        }
        print(f"{runner}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        for file in files:
            if runner != "oracle" and rows[file.name].kind in arguments.show:
                print(f"{runner}\t{file.name}\t{rows[file.name].kind}\t{rows[file.name].reason}", flush=True)
        table = {file.name: [rows[file.name].kind, rows[file.name].reason] for file in files}
        if runner == "oracle":
            report["oracle"] = table
        else:
            report["engines"][runner] = table
        if arguments.json:
            write_atomic(arguments.json, json.dumps(report, indent=1).encode())
    return report


def _read_report(path: Path) -> dict[str, dict[str, Outcome]]:
    engines = json.loads(path.read_bytes())["engines"]
    return {runner: {name: Outcome(*row) for name, row in rows.items()} for runner, rows in engines.items()}


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.files", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="files .onnx are searched there and below")
    add(
        "--engine",
        nargs="+",
        choices=ENGINES,
        default=list(ENGINES),
        help="default: all; cuda without a GPU on host arrays",
    )
    add(
        "-k", dest="words", nargs="+", default=[""], metavar="WORD", help="only files whose path has one of these words"
    )
    add("--every", type=IntRange(1, 10**6), default=1, metavar="N", help="only every N-th file (default: all)")
    add("--processes", type=IntRange(1, 1024), default=os.cpu_count(), help="files at a time (default: %(default)s)")
    add("--time-limit", type=IntRange(1, 3600), default=60, help="seconds that one may take (default: %(default)s)")
    add(
        "--show",
        nargs="*",
        default=[],
        choices=KINDS,
        metavar="KIND",
        help=f"print files that ended so: {', '.join(KINDS)}",
    )
    add("--json", type=Path, metavar="FILE", help="write the outcome of each file")
    add("--before", type=Path, metavar="FILE", help="such a file of an earlier run: the table has both numbers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
