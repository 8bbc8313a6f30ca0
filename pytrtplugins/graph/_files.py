"""ONNX files, with the weights inside or beside them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import atomic_path
from .._optional import require
from .._proto import copy_fields
from .._validation import load_external_data, validated
from .._validation.limits import MOST_FILE_BYTES
from ..errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["read_onnx", "write_onnx"]

_MOST_BYTES = 2**31 - 2**24  # protobuf's limit, less what is no weight
_LEAST_EXTERNAL = 1024  # smaller tensors stay inside: they are shapes and scalars, which readers want at hand
_ALIGNMENT = 4096  # of external data: pages, so that readers can map it
_FEATURE = "reading and writing ONNX files"


def read_onnx(path: str | Path) -> tuple[onnx.ModelProto, bool]:
    """Read a file, with its external data.

    Returns:
        The model, all data inside, and whether some lay in other files.

    Raises:
        FileNotFoundError: there is no such file.
        ModelError: it is no ONNX model, it is broken (see `pytrtplugins._validation`), or its external data cannot be read.
    """
    onnx, path = require("onnx", extra="onnx", feature=_FEATURE), Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected an ONNX model")
    size = path.stat().st_size
    if size > MOST_FILE_BYTES:
        raise ModelError(
            f"{path}: {size:,} bytes; an ONNX file has at most {MOST_FILE_BYTES:,}, since protobuf reads no more.\n"
            "Do: export the model with its weights beside it (external data)",
            path=path,
        )
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises types of its own
        raise ModelError(
            f"{path}: not an ONNX model ({error}).\nDo: darknet2caffe CFG WEIGHTS -o {path}", path=path
        ) from error
    if not model.graph.node:
        raise ModelError(f"{path}: the model has no nodes.\nDo: darknet2caffe CFG WEIGHTS -o {path}", path=path)
    external = load_external_data(model, path)
    return validated(model, path=path), external


def write_onnx(model: onnx.ModelProto, path: str | Path, *, external_data: bool) -> tuple[Path, ...]:
    """Write a model, whole or not at all.

    Args:
        model: The model, all data inside; it is not changed.
        path: The file; its format is that of its name (``.onnx``, ``.textproto``, ``.onnxtxt``, ``.json``).
        external_data: Put the weights into ``PATH.data``; above 2 GiB they always go there.

    Returns:
        The files written: the model, and its data where they are apart.
    """
    onnx, path = require("onnx", extra="onnx", feature=_FEATURE), Path(path)
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if not external_data and size <= _MOST_BYTES:
        with atomic_path(path) as temporary:
            onnx.save(model, temporary)
        return (path,)
    data = path.with_name(f"{path.name}.data")
    with contextlib.ExitStack() as stack:
        written_model, written_data = (stack.enter_context(atomic_path(target)) for target in (path, data))
        onnx.save(_outsourced(model, written_data, data.name), written_model)
    return path, data


def _outsourced(model: onnx.ModelProto, path: Path, location: str) -> onnx.ModelProto:
    """The model with its large initializers in a file; they are never copied as a whole."""
    shell = type(model)()
    copy_fields(model, shell, without=("graph",))
    copy_fields(model.graph, shell.graph, without=("initializer",))
    with path.open("wb") as file:
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) < _LEAST_EXTERNAL:
                shell.graph.initializer.append(tensor)
                continue
            file.write(bytes(-file.tell() % _ALIGNMENT))
            places = {"location": location, "offset": file.tell(), "length": len(tensor.raw_data)}
            outside = shell.graph.initializer.add(data_location=1)
            copy_fields(tensor, outside, without=("raw_data", "data_location", "external_data"))
            for key, place in places.items():
                outside.external_data.add(key=key, value=str(place))
            file.write(tensor.raw_data)
    return shell
