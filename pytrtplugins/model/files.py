"""ONNX files, with the weights inside or beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from ..errors import ModelError, UsageError
from ..utils.atomic import atomic_path
from ..utils.files import check_path
from ..utils.optional import onnx, require
from ..validation import load_external_data, validated
from ..validation.limits import MAX_FILE_BYTES
from .data_file import removing_stale_data, write_apart
from .proto import copy_fields

__all__ = ["read_onnx", "write_onnx"]

_MAX_BYTES = 2**31 - 2**24  # protobuf's limit, less what is not a weight
_LEAST_EXTERNAL = 1024  # smaller tensors stay inside: they are shapes and scalars, which readers want at hand
_ALIGNMENT = 4096  # of external data: pages, so that readers can map it
_FEATURE = "reading and writing ONNX files"


def read_onnx(path: str | Path) -> tuple[onnx.ModelProto, bool]:
    """Read an ONNX file, with its external data.

    Returns:
        The model, all data inside, and whether some lay in other files.

    Raises:
        FileNotFoundError: there is no such file.
        ModelError: it is not an ONNX model, it is broken (see `pytrtplugins.validation`), or its external data cannot be read.
    """
    onnx, path = require("onnx", extra="onnx", feature=_FEATURE), Path(path)
    check_path(path, error=ModelError)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected an ONNX model")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ModelError(
            f"{path}: {size:,} bytes; an ONNX file has at most {MAX_FILE_BYTES:,}, since protobuf reads no more.\n"
            "Do: export the model with its weights beside it (external data)",
            path=path,
        )
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises types of its own
        raise ModelError(
            f"{path}: not an ONNX model ({error}).\nDo: darknet2caffe CFG WEIGHTS -o {Path(path).with_suffix('.onnx')}",
            path=path,
        ) from error
    if not (model.graph.node or model.graph.output):
        raise ModelError(
            f"{path}: the model has no nodes and no outputs.\nDo: darknet2caffe CFG WEIGHTS -o {Path(path).with_suffix('.onnx')}",
            path=path,
        )
    external = load_external_data(model, Path(os.path.realpath(path)) if path.is_symlink() else path)
    return validated(model, path=path), external


def write_onnx(model: onnx.ModelProto, path: str | Path, *, external_data: bool) -> tuple[Path, ...]:
    """Write an ONNX file, atomically.

    Args:
        model: The model, all data inside; it is not changed.
        path: The file; its format is that of its name (``.onnx``, ``.textproto``, ``.onnxtxt``, ``.json``).
        external_data: Put the weights into ``PATH.DIGEST.data``, named after their contents; above 2 GiB they always go there. The
            model takes its name last, so that whoever is killed leaves the old model with its old weights. Data that the replaced
            model had are removed.

    Returns:
        The files written: the model, and its data where they are apart.
    """
    onnx, path = require("onnx", extra="onnx", feature=_FEATURE), Path(path)
    check_path(path, error=UsageError)
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if not external_data and size <= _MAX_BYTES:
        with removing_stale_data(path), atomic_path(path) as temporary:
            onnx.save(model, temporary)
        return (path,)
    shell = _Shell(model)
    return write_apart(path, shell.write_data, shell.write_model)


class _Shell:
    """Writer of a model with external weights, which are never all copied at once."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.shell = model, type(model)()
        copy_fields(model, self.shell, without=("graph",))
        copy_fields(model.graph, self.shell.graph, without=("initializer",))

    def write_data(self, file: IO[bytes]) -> None:
        """Write the large initializers one after the other."""
        for tensor in self.model.graph.initializer:
            if len(tensor.raw_data) < _LEAST_EXTERNAL:
                self.shell.graph.initializer.append(tensor)
                continue
            file.write(bytes(-file.tell() % _ALIGNMENT))
            outside = self.shell.graph.initializer.add(data_location=1)
            copy_fields(tensor, outside, without={"raw_data", "data_location", "external_data"})
            outside.external_data.add(key="offset", value=str(file.tell()))
            outside.external_data.add(key="length", value=str(len(tensor.raw_data)))
            file.write(tensor.raw_data)

    def write_model(self, path: Path, location: str) -> None:
        """Write the rest, which says where in the data file each of them lies."""
        for tensor in self.shell.graph.initializer:
            if tensor.data_location:
                tensor.external_data.add(key="location", value=location)
        require("onnx", extra="onnx", feature=_FEATURE).save(self.shell, path)
