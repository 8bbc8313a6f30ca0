"""Kills writers of a model with its weights beside it, line by line, and says what readers find: run by `test_data_file.py`.

Each writer is a fork that ends itself by SIGKILL before the n-th line of the code that writes. Lines in a row that find the same
files are one case, since a writer that is killed before any of them leaves the same; the last case is a writer that is not killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from darknet2caffe import to_onnx
from darknet2caffe import write_onnx as write_network
from pytrtplugins.errors import ModelError
from pytrtplugins.model import read_onnx, write_onnx
from tests.darknet2caffe.networks import network

WATCHED = ("/utils/files.py", "/model/files.py", "/model/data_file.py", "/to_onnx.py")


def model(value: float) -> onnx.ModelProto:
    weights = numpy_helper.from_array(np.full((1, 600), value, np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, 1, [1, 600]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"], f"v{value:g}")], "g", [x], [y], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def darknets(value: float) -> object:
    net = network()
    layers = [{key: np.full_like(array, value) for key, array in arrays.items()} for arrays in net.weights.layers]
    return net.with_weights(layers)


def write(kind: str, path: Path, value: float) -> None:
    if kind == "graph":
        write_onnx(model(value), path, external_data=True)
    else:
        write_network(darknets(value), path, external_data=True)


def found(path: Path) -> bytes:
    return read_onnx(path)[0].SerializeToString(deterministic=True)


def expected(kind: str, value: float) -> bytes:
    made = model(value) if kind == "graph" else to_onnx(darknets(value))
    return made.SerializeToString(deterministic=True)


def traced(before_line: Callable[[], None], kind: str, path: Path) -> None:
    """Write, and call a function before each line of the code that writes."""

    def trace(frame, event, _):
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        if event == "line":
            before_line()
        return trace

    sys.settrace(trace)
    try:
        write(kind, path, 2.0)
    finally:
        sys.settrace(None)


def same_files(kind: str, path: Path) -> list[int]:
    """How many lines in a row find the same files, from the first line to the last."""
    found: list[dict[str, bytes]] = []
    traced(lambda: found.append({item.name: item.read_bytes() for item in path.parent.iterdir()}), kind, path)
    return [len(list(lines)) for _, lines in groupby(found)]


def killed_at(line: int, kind: str, path: Path) -> bool:
    """Whether a writer that is killed before a line came that far."""
    child = os.fork()
    if child == 0:
        left = line

        def count() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        traced(count, kind, path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("the writer failed")
    return os.WIFSIGNALED(status)


def main(kind: str, folder: Path) -> None:
    path, outcomes, line = folder / "model.onnx", Counter[str](), 0
    old, new = expected(kind, 1.0), expected(kind, 2.0)
    write(kind, path, 1.0)
    cases = same_files(kind, path)
    for count in [*cases, 1]:
        write(kind, path, 1.0)
        if killed_at(line, kind, path) == (line == sum(cases)):
            raise SystemExit(f"the writer has not {sum(cases)} lines each time")
        try:
            data = found(path)
            outcomes["old" if data == old else "new" if data == new else "neither"] += count
        except ModelError as error:
            outcomes[f"refused: {error}"] += count
        for item in folder.iterdir():
            os.utime(item, (time.time() - 100,) * 2)  # a minute later
        write(kind, path, 3.0)
        left = sorted(item.name for item in folder.iterdir())
        outcomes["left behind"] += len(left) - 2
        line += count
    print(json.dumps({"lines": sum(cases), "cases": len(cases), **outcomes}))


main(sys.argv[1], Path(sys.argv[2]))
