"""The rule that TensorRT's parser and builder accept a plugin; TensorRT for RTX builds without a GPU."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterator

from ..utils.optional import onnx, require
from ..utils.repeated import set_items
from . import isolate
from .cases import Case
from .models import one_node_model
from .report import Remark

__all__ = ["tensorrt_builds"]

_ENGINE, _BINDINGS = "tensorrt_rtx", "tensorrt_rtx_bindings"
_PRECISIONS = ("fp32", "fp16", "bf16")
_STDERR = 2


def tensorrt_builds(case: Case) -> str:
    """TensorRT for RTX builds a small network with the plugin, in float32, float16 and bfloat16.

    What its parser and builder say is part of the failure; where they only warn, it is a remark.
    """
    if importlib.util.find_spec(_BINDINGS) is None:
        require(_BINDINGS, extra="rtx", feature=f"engine {_ENGINE!r}")  # raises; to import the engines takes longer
    from ..engines.selection import build
    from ..engines.tensorrt._api import RTX, load

    load(RTX)
    model = _surround_with_operators(one_node_model(case))
    warnings: list[str] = []
    for precision in _PRECISIONS:
        with _record_warnings() as messages:
            try:
                build(model, engine=_ENGINE, precision=precision, progress=False)
            except Exception as error:  # of the plugin's methods, too
                return f"{precision}: {type(error).__name__}: {error}{_listed(messages)}"
        warnings += [f"{precision}: {message}" for message in messages]
    return Remark(f"it is built, with warnings:{_listed(warnings)}") if warnings else ""


def _surround_with_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Insert a Relu before each float32 input of the plugin's node, and a Neg after each such output."""
    onnx = require("onnx", extra="onnx", feature="checking a plugin's node")
    make_node, floats = onnx.helper.make_node, onnx.TensorProto.FLOAT
    graph, (node,) = model.graph, model.graph.node
    before, behind = [], []
    for index, info in enumerate(graph.input):
        if info.type.tensor_type.elem_type == floats:
            node.input[index] = f"{info.name}_relu"
            before.append(make_node("Relu", [info.name], [node.input[index]], node.input[index]))
    for index, info in enumerate(graph.output):
        if info.type.tensor_type.elem_type == floats:
            node.output[index] = f"{info.name}_plugin"
            behind.append(make_node("Neg", [node.output[index]], [info.name], f"{info.name}_neg"))
    set_items(graph.node, [*before, node, *behind])
    return model


@contextlib.contextmanager
def _record_warnings() -> Iterator[list[str]]:
    """Collect TensorRT's log messages of level WARNING or higher; in a check's process nothing is printed."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("pytrtplugins"), Handler(logging.WARNING)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with _silent() if isolate.inside() else contextlib.nullcontext():
            yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Discard what TensorRT's libraries print on stderr: each exception with its traceback."""
    saved_stderr = os.dup(_STDERR)
    with open(os.devnull, "w") as sink:
        os.dup2(sink.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(saved_stderr, _STDERR)
        os.close(saved_stderr)


def _listed(messages: list[str]) -> str:
    return "".join(f"\n  {message}" for message in dict.fromkeys(messages))
