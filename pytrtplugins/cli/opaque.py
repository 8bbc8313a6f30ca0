"""Open models with nodes that have no known class here, with dims that the user gives for their outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from ..errors import UsageError
from ..model import Graph
from ..model.opaque import hide_opaque, with_shapes
from ..utils.optional import onnx
from .shared import loading
from .shared.option import typer

__all__ = ["Shapes", "open_with_shapes", "read_shapes", "with_declared_dims"]

_TYPES = ("float32", "float16", "int32", "int64", "bool", "uint8", "int8")
_DIM = re.compile(r"[0-9]{1,9}|[A-Za-z_]\w{0,63}")
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="TENSOR=DIMS",
        callback=lambda texts: texts or None,
        help="Dims of an output of a node without a known class, such as boxes=1x100x4 or count=1x1:int32; may be repeated.",
    ),
]


def open_with_shapes(path: Path, weights: Path | None, texts: Sequence[str] | None) -> Graph:
    """Open a model in which unknown nodes are allowed, with the dims that the user gives.

    Raises:
        UsageError: a text has another form, or names a tensor that no such node gives.
    """
    graph = loading.open_graph(path, weights)
    model = hide_opaque(with_declared_dims(graph.model, texts))
    return graph if model is graph.model else Graph(model, external_data=graph.external_data)


def with_declared_dims(model: onnx.ModelProto, texts: Sequence[str] | None) -> onnx.ModelProto:
    """A model with the dims that the user gives; the model itself if there are none."""
    shapes = read_shapes(texts)
    return with_shapes(model, shapes) if shapes else model


def read_shapes(texts: Sequence[str] | None) -> dict[str, tuple[tuple[int | str, ...], str]]:
    """Tensor → dims and type, of texts such as ``boxes=1x100x4`` and ``count=Nx1:int32``."""
    expected = f"TENSOR=DIMS, such as boxes=1x100x4 or count=Nx1:int32, with a type of {', '.join(_TYPES)}"
    shapes: dict[str, tuple[tuple[int | str, ...], str]] = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        dims, colon, kind = value.partition(":")
        words = dims.split("x")
        if not name or not all(map(_DIM.fullmatch, words)) or (kind if colon else _TYPES[0]) not in _TYPES:
            raise UsageError(f"--shape {text[:80]}: expected {expected}.")
        shapes[name] = tuple(int(word) if word.isdigit() else word for word in words), kind or _TYPES[0]
    return shapes
